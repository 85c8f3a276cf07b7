//! A draft worker whose model is made cheaper.

use crate::support::{Worker, commit, decoding, open};
use engine::tiny::TinyModel;
use proto::v1::structured_output::Form;
use proto::v1::{Decoding, SamplingParams, StructuredOutput, VerificationRule};
use speculation::DraftLaw;
use tempfile::TempDir;

const PROMPT: &[u32] = &[72, 260, 301, 32];
/// The first token that a merge makes; those of single bytes come before.
const FIRST_MERGE: u32 = 256;
const MERGES: std::ops::Range<u32> = FIRST_MERGE..304;

fn tiny() -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tiny.gguf");
    TinyModel::default().write(&path).expect("written");
    let path = path.display().to_string();
    (folder, path)
}

/// Flat enough that every token comes up.
fn hot(rule: VerificationRule) -> Decoding {
    let sampling = SamplingParams {
        temperature: Some(2.0),
        ..SamplingParams::default()
    };
    Decoding {
        rule: rule.into(),
        ..decoding(sampling)
    }
}

#[tokio::test]
async fn ids_outside_a_restricted_vocabulary_are_never_proposed_nor_declared() {
    let (_folder, path) = tiny();
    let full = Worker::start(&path, &[]).await;
    let lean = Worker::start(&path, &["--draft-vocab", "1"]).await;
    for rule in [VerificationRule::Coupled, VerificationRule::Token] {
        let mut merged = [0, 0];
        for (worker, merged) in [&full, &lean].into_iter().zip(&mut merged) {
            let mut stream = worker.stream().await;
            for last in 0..24 {
                let sequence = u64::from(last);
                stream.open(open(sequence, 1, PROMPT, &hot(rule))).await;
                let proposal = stream
                    .propose(commit(sequence, 1, PROMPT.len(), &[last], 12))
                    .await;
                let laws = proposal.laws.as_ref();
                let laws = laws.map(|laws| Vec::<DraftLaw>::try_from(laws).expect("laws"));
                let declared = laws.iter().flatten().flat_map(DraftLaw::entries);
                let ids = declared.map(|entry| entry.0).chain(proposal.draft_ids);
                *merged += ids.filter(|id| MERGES.contains(id)).count();
            }
        }
        assert!(merged[0] > 10, "{rule:?}: {merged:?}");
        assert_eq!(merged[1], 0, "{rule:?}");
    }
}

#[tokio::test]
async fn where_nothing_restricted_is_possible_nothing_is_proposed_and_the_sequence_goes_on() {
    let (_folder, path) = tiny();
    let lean = Worker::start(&path, &["--draft-vocab", "1", "--requantize", "q8_0"]).await;
    let mut stream = lean.stream().await;
    let only_merges = decoding(SamplingParams {
        allowed_token_ids: MERGES.collect(),
        ..SamplingParams::default()
    });
    stream.open(open(1, 1, PROMPT, &only_merges)).await;
    let proposal = stream.propose(commit(1, 1, PROMPT.len(), &[270], 4)).await;
    assert!(proposal.draft_ids.is_empty(), "{proposal:?}");
    let again = stream
        .propose(commit(1, 1, PROMPT.len() + 1, &[271], 4))
        .await;
    assert!(again.draft_ids.is_empty(), "{again:?}");
    // A grammar can be met byte by byte.
    let formed = Decoding {
        structured: Some(StructuredOutput {
            form: Some(Form::Regex("( the| in| and){4,}".to_owned())),
        }),
        prompt_len: PROMPT.len() as u32,
        ..hot(VerificationRule::Coupled)
    };
    stream.open(open(2, 1, PROMPT, &formed)).await;
    let proposal = stream.propose(commit(2, 1, PROMPT.len(), &[220], 3)).await;
    assert!(!proposal.draft_ids.is_empty());
    assert!(
        proposal.draft_ids.iter().all(|id| *id < FIRST_MERGE),
        "{proposal:?}"
    );
}
