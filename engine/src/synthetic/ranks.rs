//! Where the target's token stands among a wrong draft's candidates.

use std::{fmt, str::FromStr};

/// How often the token that the reference law chooses is among the next 1, 2, 4 and 8 candidates of a draft whose first
/// one it is not. Written with slashes, as `.4/.55/.7/.81`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranks([f64; 4]);

/// The most decoys, for the share that the ranks leave: more than any draft's candidates that are followed.
const FAR: usize = 16;

impl Ranks {
    /// How many decoys a wrong draft puts before the reference law's token: at least one. `draw` is a random number from 0
    /// to below 1.
    pub(super) fn before(&self, draw: f64) -> usize {
        let Self([one, two, four, eight]) = *self;
        let share = |from: f64, to: f64| (draw - from) / (to - from);
        match draw {
            draw if draw < one => 1,
            draw if draw < two => 2,
            draw if draw < four => 3 + (share(two, four) * 2.0) as usize,
            draw if draw < eight => 5 + (share(four, eight) * 4.0) as usize,
            _ => FAR,
        }
    }
}

impl Default for Ranks {
    /// As measured on a real pair, Qwen2.5-Coder 1.5B and 0.5B, at temperature 1.
    fn default() -> Self {
        Self([0.4, 0.55, 0.7, 0.81])
    }
}

impl FromStr for Ranks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shares = text.split('/').map(str::parse);
        let shares: Result<Vec<f64>, _> = shares.collect();
        let shares = shares.ok().and_then(|shares| shares.try_into().ok());
        let ascending =
            |shares: &[f64; 4]| shares.is_sorted() && shares[0] >= 0.0 && shares[3] <= 1.0;
        shares.filter(ascending).map(Self).ok_or_else(|| {
            format!("ranks must be four ascending shares from 0 to 1, as .4/.55/.7/.81, not {text}")
        })
    }
}

impl fmt::Display for Ranks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([one, two, four, eight]) = self;
        write!(out, "{one}/{two}/{four}/{eight}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoys_are_as_many_as_the_shares_say() {
        let ranks = Ranks::default();
        for (draw, decoys) in [
            (0.0, 1),
            (0.399, 1),
            (0.401, 2),
            (0.549, 2),
            (0.551, 3),
            (0.624, 3),
            (0.626, 4),
            (0.699, 4),
            (0.701, 5),
            (0.809, 8),
            (0.811, FAR),
            (0.999_999, FAR),
        ] {
            assert_eq!(ranks.before(draw), decoys, "{draw}");
        }
        let always: Ranks = "1/1/1/1".parse().unwrap();
        assert_eq!(always.before(0.999_999), 1);
        let never: Ranks = "0/0/0/0".parse().unwrap();
        assert_eq!(never.before(0.0), FAR);
    }

    #[test]
    fn what_is_no_law_is_refused() {
        for text in [
            "",
            ".4/.5/.6",
            ".4/.5/.6/.7/.8",
            ".5/.4/.6/.7",
            "-.1/0/0/0",
            "0/0/0/1.1",
            "NaN/NaN/NaN/NaN",
            "a/b/c/d",
        ] {
            assert!(text.parse::<Ranks>().is_err(), "{text}");
        }
        assert_eq!("0.4/.55/0.70/.81".parse(), Ok(Ranks::default()));
        assert_eq!(Ranks::default().to_string().parse(), Ok(Ranks::default()));
    }
}
