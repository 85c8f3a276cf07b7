//! Under the rule `coupled` a seed has one text: the same bytes with every draft, draft length and
//! load, and those of plain decoding.

use super::Models;
use super::laws::start;
use super::options::{OptionSet, Words};
use super::table::Line;
use crate::drafts::Agreement;
use crate::{Answer, Client, Prompting as _};
use anyhow::Result;
use futures::future::try_join_all;
use proto::v1::{GenerateRequest, SamplingParams, VerificationRule};
use std::collections::HashSet;

/// How much is compared.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// Tokens of a text.
    pub tokens: u32,
    /// Draft lengths, 0 to this.
    pub longest_draft: u32,
    /// The first seed.
    pub seed: u64,
}

/// Seeds that are compared.
const SEEDS: usize = 3;
/// Requests at once, and as many neighbours without a seed.
const CROWD: u32 = 8;
/// Choices of the request that has several.
const CHOICES: u32 = 4;
/// The longest text that is asked for again, shorter.
const LONGEST_CUT: u32 = 5;

/// A line for each of `sets`, over drafts that agree with their target as `agreement` says.
///
/// # Errors
/// Where something does not come up, or a request fails.
pub async fn lines(
    models: &Models,
    sets: &[OptionSet],
    agreement: Agreement,
    extent: Extent,
    progress: &dyn Fn(&str),
) -> Result<Vec<Line>> {
    let draft = models.write_draft(agreement)?;
    let cluster = start(models, &[draft], &[]).await?;
    let client = cluster.client().await?;
    let words = &models.target.words;
    let mut lines = Vec::new();
    for set in sets {
        let name = format!("{}, drafts {}", set.name, agreeing(agreement));
        progress(&format!("equality: {name}"));
        let requests = Requests { set, words, extent };
        let mut comparison = Comparison::default();
        compare(&client, &requests, &mut comparison).await?;
        lines.push(comparison.line(&name, agreement));
    }
    Ok(lines)
}

/// Greedy decoding, which is the rule `coupled` without noise.
pub fn greedy() -> OptionSet {
    OptionSet {
        name: "greedy",
        sampling: SamplingParams {
            temperature: Some(0.0),
            ..SamplingParams::default()
        },
        grammar: false,
    }
}

fn agreeing(agreement: Agreement) -> &'static str {
    match agreement {
        Agreement::Always => "always agree",
        Agreement::Half => "agree half the time",
        Agreement::Never => "never agree",
    }
}

async fn compare(client: &Client, requests: &Requests<'_>, all: &mut Comparison) -> Result<()> {
    let plain = (0..SEEDS).map(|seed| client.generate(requests.seeded(seed).plain()));
    let plain = try_join_all(plain).await?;
    for k in 0..=requests.extent.longest_draft {
        let answer = client.generate(requests.seeded(0).drafting(k)).await?;
        all.same(&format!("k = {k}"), &plain[0], &answer);
    }
    let answers = crowd(client, requests).await?;
    for (place, answer) in answers.iter().enumerate() {
        let what = format!("request {place} of {CROWD} at once");
        all.same(&what, &plain[place % SEEDS], answer);
    }
    let several = requests.seeded(0).choices(CHOICES);
    let plainly = client.generate_choices(several.clone().plain()).await?;
    let drafted = client.generate_choices(several.drafting(3)).await?;
    all.same("choice 0 and the only choice", &plain[0], &plainly[0]);
    for (number, (plainly, drafted)) in plainly.iter().zip(&drafted).enumerate() {
        all.same(&format!("choice {number}"), plainly, drafted);
    }
    let texts: HashSet<_> = plainly.iter().map(|answer| &answer.ids).collect();
    let distinct = requests.set.sampling.temperature == Some(0.0) || texts.len() == plainly.len();
    all.hold("the choices are distinct", distinct);
    for count in 1..=LONGEST_CUT {
        let mut request = requests.seeded(0).drafting(3);
        request.stop.get_or_insert_default().max_tokens = Some(count);
        let cut = client.generate(request).await?;
        let begins = plain[0].ids.starts_with(&cut.ids) && cut.ids.len() == count as usize;
        all.hold(&format!("a text cut after {count} tokens"), begins);
    }
    Ok(())
}

/// Seeded requests of different draft lengths beside others without a seed; the answers to the
/// seeded ones.
async fn crowd(client: &Client, requests: &Requests<'_>) -> Result<Vec<Answer>> {
    let seeded = (0..CROWD).map(|place| {
        let longest = requests.extent.longest_draft.max(1);
        let request = requests.seeded(place as usize % SEEDS);
        client.generate(request.drafting(1 + place % longest))
    });
    let unseeded = (0..CROWD).map(|_| client.generate(requests.unseeded()));
    let (seeded, _) = futures::try_join!(try_join_all(seeded), try_join_all(unseeded))?;
    Ok(seeded)
}

struct Requests<'a> {
    set: &'a OptionSet,
    words: &'a Words,
    extent: Extent,
}

impl Requests<'_> {
    fn unseeded(&self) -> GenerateRequest {
        let mut request = self
            .set
            .request(self.words, false, self.extent.tokens)
            .rule(VerificationRule::Coupled);
        if self.set.grammar
            && let Some(sampling) = &mut request.sampling
        {
            // So that a grammar's texts are long as well.
            let unlikely = self.words.ends.iter().map(|end| (*end, -100.0));
            sampling.logit_bias.extend(unlikely);
        }
        request
    }

    fn seeded(&self, seed: usize) -> GenerateRequest {
        self.unseeded()
            .seed(self.extent.seed.wrapping_add(seed as u64))
    }
}

/// Texts that were compared, and what became of their drafts.
#[derive(Debug, Default)]
struct Comparison {
    texts: u64,
    differing: Vec<String>,
    drafted: u32,
    accepted: u32,
}

impl Comparison {
    fn same(&mut self, what: &str, plain: &Answer, answer: &Answer) {
        let same = plain.ids == answer.ids
            && plain.text == answer.text
            && plain.reason == answer.reason
            && plain.usage == answer.usage;
        self.drafted += answer.speculation.draft_tokens;
        self.accepted += answer.speculation.accepted_draft_tokens;
        self.hold(what, same);
    }

    fn hold(&mut self, what: &str, holds: bool) {
        self.texts += 1;
        if !holds {
            self.differing.push(what.to_owned());
        }
    }

    fn line(self, name: &str, agreement: Agreement) -> Line {
        let rejected = self.drafted - self.accepted;
        let exercised = match agreement {
            Agreement::Always => self.accepted > 0,
            Agreement::Half => self.accepted > 0 && rejected > 0,
            Agreement::Never => rejected > 0,
        };
        let share = 100.0 * f64::from(self.accepted) / f64::from(self.drafted.max(1));
        let mut note = format!("{} drafted, {share:.0} % accepted", self.drafted);
        if let Some(first) = self.differing.first() {
            note = format!("{first}; {note}");
        }
        let differing = self.differing.len() as u64;
        Line::equality("coupled", name, self.texts, differing).noting(note, exercised)
    }
}
