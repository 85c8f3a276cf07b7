//! Attention of new rows over cached keys and values.
