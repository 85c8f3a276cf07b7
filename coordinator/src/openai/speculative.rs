//! What a body says about speculation.

use super::bodies::Parameters;
use super::error::Failure;
use proto::v1::{DraftSource, Speculation, SpeculationMode, VerificationRule};
use serde::Deserialize;
use utoipa::ToSchema;

/// Whether and how to speculate.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Speculative {
    /// Off is plain decoding.
    enabled: Option<bool>,
    /// The most tokens to draft per round, 0 to 16.
    n_max: Option<u32>,
    /// The fewest, at most `n_max`.
    n_min: Option<u32>,
    /// A proposal ends before a token that is less probable than this, 0 to below 1.
    p_min: Option<f32>,
    /// How proposals are verified.
    rule: Option<Rule>,
    /// Where drafts may come from.
    sources: Option<Vec<Source>>,
}

/// How proposals are verified.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Rule {
    /// With shared noise.
    Coupled,
    /// Token by token.
    Token,
    /// As a block.
    Block,
}

/// Where drafts come from.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Source {
    /// A draft model.
    Model,
    /// The text itself.
    Ngram,
}

impl Parameters {
    /// What the request says about speculation, in either spelling.
    ///
    /// # Errors
    /// Names a field that is given in both.
    pub(super) fn speculation(&mut self) -> Result<Speculation, Failure> {
        let nested = self.speculative.take().unwrap_or_default();
        let enabled = either("enabled", nested.enabled, self.speculative_enabled)?;
        let mode = match enabled {
            None => SpeculationMode::Unspecified,
            Some(true) => SpeculationMode::Auto,
            Some(false) => SpeculationMode::Off,
        };
        let rule = nested
            .rule
            .map_or(VerificationRule::Unspecified, Rule::named);
        let sources = nested.sources.unwrap_or_default();
        Ok(Speculation {
            mode: mode.into(),
            max_draft_tokens: either("n_max", nested.n_max, self.speculative_n_max)?,
            rule: rule.into(),
            min_draft_tokens: either("n_min", nested.n_min, self.speculative_n_min)?,
            min_confidence: either("p_min", nested.p_min, self.speculative_p_min)?,
            sources: sources.into_iter().map(|it| it.named().into()).collect(),
        })
    }
}

fn either<T>(name: &str, nested: Option<T>, dotted: Option<T>) -> Result<Option<T>, Failure> {
    if nested.is_some() && dotted.is_some() {
        let field = format!("speculative.{name}");
        return Err(Failure::invalid(field, "is given twice"));
    }
    Ok(nested.or(dotted))
}

impl Rule {
    fn named(self) -> VerificationRule {
        match self {
            Self::Coupled => VerificationRule::Coupled,
            Self::Token => VerificationRule::Token,
            Self::Block => VerificationRule::Block,
        }
    }
}

impl Source {
    fn named(self) -> DraftSource {
        match self {
            Self::Model => DraftSource::Model,
            Self::Ngram => DraftSource::Ngram,
        }
    }
}
