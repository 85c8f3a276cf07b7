//! Matrix products with quantised weights.
