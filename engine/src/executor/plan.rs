//! Which rows a step computes.

/// The most rows that still count as verification or decoding; more are a prefill.
pub(super) const SHORT_ROWS: usize = 32;

/// How many rows of each job a step of at most `budget` rows computes. `due` are the rows that each
/// could have computed, at least one; jobs that have waited longer come first.
///
/// Short jobs are served before prefills, so that all of them advance in every step that has room
/// for them, and in turn where it has not. A quarter of the step is for prefills where there is
/// one, so that they come to their end under any load.
pub(super) fn plan(due: &[usize], budget: usize) -> Vec<usize> {
    let (short, long): (Vec<usize>, Vec<usize>) =
        (0..due.len()).partition(|&job| due[job] <= SHORT_ROWS);
    let for_prefill = if long.is_empty() {
        0
    } else {
        budget.div_ceil(4)
    };

    let mut rows = vec![0; due.len()];
    let mut fill = |jobs: &[usize], mut left: usize| {
        for &job in jobs {
            rows[job] = due[job].min(left);
            left -= rows[job];
        }
        left
    };
    let left = fill(&short, budget - for_prefill);
    fill(&long, left + for_prefill);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_jobs_advance_beside_a_prefill() {
        assert_eq!(plan(&[1000, 5, 1], 64), [58, 5, 1]);
    }

    #[test]
    fn prefills_are_served_in_order() {
        assert_eq!(plan(&[40, 100], 64), [40, 24]);
    }

    #[test]
    fn a_prefill_advances_under_any_load_of_short_jobs() {
        assert_eq!(plan(&[20, 20, 20, 1000], 32), [20, 4, 0, 8]);
    }

    /// Verification of eight sequences while prompts of 4096 tokens come in without end.
    #[test]
    fn long_prompts_never_hold_up_verification_and_never_wait_for_its_end() {
        const BUDGET: usize = 64;
        let mut due = vec![5; 8];
        due.extend([4096; 3]);
        for _ in 0..300 {
            let rows = plan(&due, BUDGET);
            assert_eq!(
                rows[..8],
                [5; 8],
                "each verification is served in each step"
            );
            assert!(
                rows.iter().sum::<usize>() <= BUDGET,
                "which is no longer than that"
            );
            assert!(rows[8] >= BUDGET / 4, "the first prompt comes to its end");
            due[8] -= rows[8];
            if due[8] <= SHORT_ROWS {
                due[8] = 4096;
            }
        }
    }

    #[test]
    fn a_step_is_never_larger_than_its_budget_and_never_smaller_than_need_be() {
        for budget in 1..150 {
            for due in [vec![1], vec![33], vec![7, 90, 32, 40], vec![32, 32, 64]] {
                let all: usize = due.iter().sum();
                let planned: usize = plan(&due, budget).iter().sum();
                let prefill = due.iter().any(|&rows| rows > SHORT_ROWS);
                assert!(planned <= budget, "{due:?} within {budget}");
                assert!(planned == all.min(budget) || prefill && planned > 0);
            }
        }
    }
}
