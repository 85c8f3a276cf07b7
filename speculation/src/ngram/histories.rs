//! Past outputs, by tenant: what one tenant's texts said is used for that tenant's texts only.

use super::NgramDraft;
use super::automaton::{Automaton, Place};
use super::reliance::Reliance;
use crate::TokenId;
use std::collections::HashMap;

/// Ends every output within an index. No model has such a token.
const END: TokenId = TokenId::MAX;

/// How many last tokens of a text are looked for.
const TAIL: usize = 32;

/// The past outputs of tenants, up to a number of tokens each. Which tenant is unheard of for longest is
/// forgotten where there are too many.
///
/// Takes some 90 bytes for a token.
#[derive(Debug)]
pub struct Histories {
    tokens_per_tenant: usize,
    tenants: usize,
    by_tenant: HashMap<String, History>,
    /// How many outputs were added so far.
    added: u64,
}

/// One tenant's past outputs: the newer half of what is kept, and the older, which goes at once when
/// the newer is full. An index can be added to but nothing can be taken out of it.
#[derive(Debug)]
struct History {
    newer: Automaton,
    older: Automaton,
    last_added: u64,
}

/// What one text takes from the history of its tenant, and how far that was of use so far.
#[derive(Debug, Clone)]
pub struct Recall {
    tenant: String,
    tail: Vec<TokenId>,
    reliance: Reliance,
}

impl Histories {
    /// Keeps at most `tokens_per_tenant` of each tenant, and at most `tenants` of them. Nothing where
    /// either is 0.
    pub fn new(tokens_per_tenant: usize, tenants: usize) -> Self {
        Self {
            tokens_per_tenant,
            tenants,
            by_tenant: HashMap::new(),
            added: 0,
        }
    }

    /// Adds an output of `tenant`.
    pub fn add(&mut self, tenant: &str, output: &[TokenId]) {
        // With its end, and in either half.
        let most = (self.tokens_per_tenant / 2).saturating_sub(1);
        if self.tenants == 0 || most == 0 || output.is_empty() {
            return;
        }
        self.added += 1;
        if !self.by_tenant.contains_key(tenant) && self.by_tenant.len() >= self.tenants {
            self.forget_one();
        }
        let output = &output[output.len().saturating_sub(most)..];
        let history = self.by_tenant.entry(tenant.to_owned());
        let history = history.or_insert_with(History::new);
        history.add(output, most + 1);
        history.last_added = self.added;
    }

    /// How many tokens of `tenant` are kept.
    #[cfg(test)]
    pub(super) fn tokens(&self, tenant: &str) -> usize {
        let history = self.by_tenant.get(tenant);
        history.map_or(0, |history| history.newer.len() + history.older.len())
    }

    fn forget_one(&mut self) {
        let oldest = self
            .by_tenant
            .iter()
            .min_by_key(|(_, history)| history.last_added)
            .map(|(tenant, _)| tenant.clone());
        if let Some(tenant) = oldest {
            self.by_tenant.remove(&tenant);
        }
    }
}

impl History {
    fn new() -> Self {
        Self {
            newer: Automaton::new(),
            older: Automaton::new(),
            last_added: 0,
        }
    }

    fn add(&mut self, output: &[TokenId], most: usize) {
        if self.newer.len() + output.len() + 1 > most {
            self.older = std::mem::replace(&mut self.newer, Automaton::new());
        }
        for token in output.iter().chain([&END]) {
            self.newer.push(*token);
        }
    }

    /// Where the longest suffix of `tail` occurred, the newer half first.
    fn find(&self, tail: &[TokenId]) -> (&Automaton, Place) {
        let newer = (&self.newer, self.newer.find(tail));
        let older = (&self.older, self.older.find(tail));
        if older.1.len() > newer.1.len() {
            older
        } else {
            newer
        }
    }
}

impl Recall {
    /// For a text of `tenant` that begins with `prompt`.
    pub fn new(tenant: &str, prompt: &[TokenId]) -> Self {
        Self {
            tenant: tenant.to_owned(),
            tail: prompt[prompt.len().saturating_sub(TAIL)..].to_vec(),
            reliance: Reliance::default(),
        }
    }

    /// The text's tenant.
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// Appends `token` to the text, and learns from it how far to rely on the history.
    pub fn push(&mut self, token: TokenId, histories: &Histories) {
        if let Some((index, place)) = self.find(histories)
            && let Some(step) = index.steps(place).next()
        {
            self.reliance.learn(&step, step.token == token);
        }
        if self.tail.len() == TAIL {
            self.tail.remove(0);
        }
        self.tail.push(token);
    }

    /// What followed the longest suffix of the text that occurred in the history, at most `max` tokens.
    pub fn propose(&self, max: usize, histories: &Histories) -> Option<NgramDraft> {
        let (index, place) = self.find(histories)?;
        let steps = index.steps(place).take_while(|step| step.token != END);
        NgramDraft::new(steps.take(max), self.reliance)
    }

    fn find<'a>(&self, histories: &'a Histories) -> Option<(&'a Automaton, Place)> {
        let history = histories.by_tenant.get(&self.tenant)?;
        let (index, place) = history.find(&self.tail);
        (!place.is_empty()).then_some((index, place))
    }
}
