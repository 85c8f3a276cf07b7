//! A bound on work that the library does not bound.
//!
//! Its lexer follows a regular expression by derivatives. That of a run of parts of which each may
//! be left out, `a?b?c?…`, has an alternative for every part, and they are made one by one, each
//! with those before: in one step, which no limit interrupts, as much as the run's length squared.

use llguidance::derivre::ExprRef;
use llguidance::derivre::raw::ExprSet;

/// Runs of 4,000 parts are under it, and take a second.
const MAX_WORK: u64 = 8_000_000;

/// Refuses expressions of which one step would take too long.
pub(crate) fn check(expressions: &ExprSet) -> Result<(), String> {
    let ids = (0..u32::try_from(expressions.len()).unwrap_or(u32::MAX)).map(ExprRef::new);
    // The run that begins with each expression. Parts come before what they are part of.
    let mut runs = vec![0_u64; expressions.len()];
    let mut work = 0;
    for id in ids.filter(|&id| expressions.is_valid(id)) {
        let [first, rest] = *expressions.get_args(id) else {
            continue;
        };
        if expressions.is_nullable(first) {
            let run = 1 + runs.get(rest.as_usize()).copied().unwrap_or(0);
            runs[id.as_usize()] = run;
            work += run;
        }
    }
    if work > MAX_WORK {
        return Err("too many parts in a row that may be left out".to_owned());
    }
    Ok(())
}
