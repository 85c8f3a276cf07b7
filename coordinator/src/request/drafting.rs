//! What a request says about speculation.

use super::{Defaults, MAX_DRAFT_TOKENS};
use proto::v1::{DraftSource, Speculation, SpeculationMode, VerificationRule};
use service::Error;
use speculation::Rule;

/// Where a request's drafts may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sources {
    /// Draft workers.
    pub(crate) model: bool,
    /// What followed the same tokens earlier.
    pub(crate) ngram: bool,
}

impl Sources {
    /// Any.
    pub(crate) const ALL: Self = Self {
        model: true,
        ngram: true,
    };
}

/// Tokens to draft per round where a seed is to give its text again and nobody says how many.
const SEEDED_TOKENS: u32 = 3;

/// How a request is drafted for.
#[derive(Debug)]
pub(super) struct Drafting {
    pub(super) rule: Rule,
    pub(super) max_tokens: u32,
    pub(super) min_tokens: u32,
    pub(super) min_confidence: Option<f32>,
    pub(super) sources: Sources,
}

/// Checks `speculation`, and fills in what it leaves open; `seeded` where the request has a seed.
///
/// Under the rules other than `coupled` the words depend on how many tokens were drafted. So that a
/// seed gives its text again, that is fixed there, and not a matter of what was measured.
///
/// # Errors
/// [`service::Class::Invalid`] with the field's path.
pub(super) fn check(
    speculation: Option<Speculation>,
    seeded: bool,
    defaults: &Defaults,
) -> Result<Drafting, Error> {
    let speculation = speculation.unwrap_or_default();
    let mode = SpeculationMode::try_from(speculation.mode)
        .map_err(|error| Error::invalid("speculation.mode", error.to_string()))?;
    let rule = VerificationRule::try_from(speculation.rule)
        .map_err(|error| Error::invalid("speculation.rule", error.to_string()))?;
    let rule = Rule::try_from(rule).unwrap_or(defaults.rule);
    let (mut min_tokens, mut max_tokens) = lengths(&speculation, defaults)?;
    if seeded && rule != Rule::Coupled && speculation.min_draft_tokens.is_none() {
        let stated = speculation.max_draft_tokens;
        max_tokens = stated.unwrap_or(max_tokens.min(SEEDED_TOKENS));
        min_tokens = max_tokens;
    }
    let stated = confidence(speculation.min_confidence)?;
    let off = mode == SpeculationMode::Off;
    Ok(Drafting {
        rule,
        max_tokens: if off { 0 } else { max_tokens },
        min_tokens: if off { 0 } else { min_tokens },
        min_confidence: stated.or(defaults.min_confidence),
        sources: sources(&speculation.sources)?,
    })
}

/// The fewest and the most tokens to draft per round. The server's fewest gives way to what the
/// client wants at most.
fn lengths(speculation: &Speculation, defaults: &Defaults) -> Result<(u32, u32), Error> {
    let most = speculation
        .max_draft_tokens
        .unwrap_or(defaults.max_draft_tokens);
    if most > MAX_DRAFT_TOKENS {
        let message = format!("must be at most {MAX_DRAFT_TOKENS}, not {most}");
        return Err(Error::invalid("speculation.max_draft_tokens", message));
    }
    let fewest = match speculation.min_draft_tokens {
        Some(fewest) if fewest > most => {
            let message = format!("must be at most max_draft_tokens, {most}, not {fewest}");
            return Err(Error::invalid("speculation.min_draft_tokens", message));
        }
        Some(fewest) => fewest,
        None => defaults.min_draft_tokens.min(most),
    };
    Ok((fewest, most))
}

fn confidence(stated: Option<f32>) -> Result<Option<f32>, Error> {
    match stated {
        Some(least) if !(0.0..1.0).contains(&least) => {
            let message = format!("must be 0 to below 1, not {least}");
            Err(Error::invalid("speculation.min_confidence", message))
        }
        stated => Ok(stated),
    }
}

fn sources(stated: &[i32]) -> Result<Sources, Error> {
    if stated.is_empty() {
        return Ok(Sources::ALL);
    }
    let mut sources = Sources {
        model: false,
        ngram: false,
    };
    for source in stated {
        match DraftSource::try_from(*source) {
            Ok(DraftSource::Model) => sources.model = true,
            Ok(DraftSource::Ngram) => sources.ngram = true,
            Ok(DraftSource::Unspecified) => {
                let message = "a source must be stated: leave the list empty to allow all";
                return Err(Error::invalid("speculation.sources", message));
            }
            Err(error) => return Err(Error::invalid("speculation.sources", error.to_string())),
        }
    }
    Ok(sources)
}
