//! Who may use the service, and how much of it.

mod keys;

pub(crate) use keys::read_keys;

use std::sync::Arc;

/// Who asks: the owner of the key that came with a call. Without keys, everybody is the same one,
/// without a name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Identity {
    /// What logs, metrics and the scheduler's turns call it. Never the key itself.
    pub(crate) name: Arc<str>,
    /// How much it may have at once.
    pub(crate) limits: Limits,
}

impl Identity {
    /// Whose turn a request of this one counts as, that says it is of `tenant`: with a key, its
    /// owner's, who may have tenants of its own; without keys, what the request says.
    pub(crate) fn tenant(&self, tenant: &str) -> Arc<str> {
        match (&*self.name, tenant) {
            ("", _) => tenant.into(),
            (_, "") => Arc::clone(&self.name),
            (name, tenant) => format!("{name}/{tenant}").into(),
        }
    }
}

/// How much a key may have at once, beside what all have together. `None` sets no limit of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Choices that run.
    pub(crate) running: Option<u32>,
    /// Choices that wait to run.
    pub(crate) waiting: Option<u32>,
    /// Tokens, of prompts and of what may still be generated, of all that run.
    pub(crate) tokens: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_of_a_key_cannot_take_the_turns_of_another() {
        let named = |name: &str| Identity {
            name: name.into(),
            ..Identity::default()
        };
        let of = |name: &str, tenant: &str| named(name).tenant(tenant);
        assert_eq!(&*of("", "team"), "team");
        assert_eq!(&*of("", ""), "");
        assert_eq!(&*of("ann", ""), "ann");
        assert_eq!(&*of("ann", "bob"), "ann/bob");
    }
}
