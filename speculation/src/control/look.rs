//! When to decode plainly once, to see what that costs.

use super::Plan;

/// Steps between looks. At a speculation that gives twice the tokens it costs one in 250.
const AFTER: u32 = 128;

/// The same where plain decoding seems to be the better one.
const SOON: u32 = 8;

/// Steps before the first look: until then what plain decoding costs is at best a guess from larger
/// steps, which makes it look dearer than it is.
const FIRST: u32 = 16;

/// A look ends when plain decoding is known, and after so many steps: the first one may still hold what
/// was under way, and the first of its size may be slow.
const STEPS: u32 = 3;

/// While sequences speculate, nobody would notice that plain decoding has become the better way. So,
/// where what it costs has not been measured lately, all of them decode plainly for a step or two: a step
/// that holds a single draft tells nothing.
///
/// One for all sequences of a target.
#[derive(Debug, Clone)]
pub struct Look {
    since: u32,
    /// Steps that are left of the look; 0 where there is none.
    left: u32,
}

impl Default for Look {
    fn default() -> Self {
        Self::new()
    }
}

impl Look {
    /// None so far.
    pub fn new() -> Self {
        Self {
            since: AFTER - FIRST,
            left: 0,
        }
    }

    /// Begins a look where `plan`, which would be followed otherwise, gives cause.
    pub fn consider(&mut self, plan: &Plan) {
        let worse = plan.rate < plan.plain_rate;
        let after = if worse { SOON } else { AFTER };
        if plan.known && !plan.plain_known && self.since >= after && self.left == 0 {
            (self.since, self.left) = (0, STEPS);
        }
    }

    /// A step was computed. `known`: what plain decoding costs has been measured lately.
    pub fn step(&mut self, known: bool) {
        self.since = self.since.saturating_add(1);
        self.left = if known {
            0
        } else {
            self.left.saturating_sub(1)
        };
    }

    /// True while sequences that may choose are to decode plainly.
    pub fn is_on(&self) -> bool {
        self.left > 0
    }
}
