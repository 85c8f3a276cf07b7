//! Which processor cores a worker computes on, and whether two workers compete for them.

use proto::v1;
use std::collections::BTreeSet;

/// The cores of a machine that a worker computes on. Empty where its model computes elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Processors {
    machine: String,
    cores: BTreeSet<u32>,
    threads: usize,
}

impl Processors {
    /// As a worker describes them.
    pub(crate) fn described(processors: Option<&v1::Processors>) -> Self {
        processors.map_or_else(Self::default, |processors| Self {
            machine: processors.machine.clone(),
            cores: processors.cores.iter().copied().collect(),
            threads: processors.threads as usize,
        })
    }

    /// True where the two cannot both compute at full speed: they may run on the same cores, and those
    /// that they have are fewer than their threads. What one does while the other computes is then taken
    /// from it.
    pub(super) fn compete_with(&self, other: &Self) -> bool {
        self.machine == other.machine
            && !self.cores.is_disjoint(&other.cores)
            && self.threads + other.threads > self.cores.union(&other.cores).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processors(machine: &str, cores: &[u32], threads: u32) -> Processors {
        Processors::described(Some(&v1::Processors {
            machine: machine.to_owned(),
            cores: cores.to_vec(),
            threads,
        }))
    }

    #[test]
    fn workers_compete_for_cores_of_one_machine_that_are_too_few_for_both() {
        let target = processors("a", &[0, 1], 2);
        assert!(target.compete_with(&processors("a", &[0, 1], 2)));
        assert!(target.compete_with(&processors("a", &[1, 2], 2)));
        for (other, why) in [
            (processors("b", &[0, 1], 2), "another machine"),
            (processors("a", &[2, 3], 2), "other cores"),
            (processors("a", &[0, 1, 2, 3], 2), "enough for both"),
            (Processors::default(), "a GPU"),
        ] {
            assert!(!target.compete_with(&other), "{why}");
            assert!(!other.compete_with(&target), "{why}");
        }
        assert!(!Processors::default().compete_with(&Processors::default()));
    }
}
