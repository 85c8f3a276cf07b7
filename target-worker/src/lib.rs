//! Verifies proposals with the big model.
