//! What a restricted vocabulary and other encodings make of a draft: the time of a step, and how often
//! the target says the same.
//!
//! `cargo run --release --workspace --example lean -- TARGET.gguf DRAFT.gguf [ENCODING...]`. All drafts
//! take their steps in turn, so that a busy machine disturbs all alike; times are medians.

use engine::lean::{FrequentIds, Lean};
use engine::{CacheType, Input, Lease, LoadError, LoadOptions, Model, Pool, Source};
use speculation::{NoiseKey, Sampler, Sampling, SamplingOptions, TokenId};
use std::io::Write as _;
use std::time::Instant;
use tokenizers::Tokenizer;

const PROMPTS: [&str; 5] = [
    "Write a Rust function that merges two sorted vectors, with comments.",
    "Write a Python class for a bank account with deposits and interest.",
    "Explain in a few sentences how vaccines work.",
    "Erkläre in drei Sätzen, warum der Himmel blau ist.",
    "List five European capitals with country and population as JSON.",
];
const TOKENS: usize = 96;
const STEPS: usize = 60;
const BLOCKS: usize = 16;
const TEMPERATURES: [f32; 2] = [0.0, 0.8];

struct Running {
    model: Box<dyn Model>,
    pool: Pool,
    tokenizer: Tokenizer,
}

struct Contender {
    name: String,
    running: Running,
    step_ms: Vec<f64>,
    /// Of all positions, by temperature.
    agreed: [usize; 2],
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failed> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [target, draft, encodings @ ..] = &args[..] else {
        return Err("TARGET.gguf DRAFT.gguf [ENCODING...]".into());
    };
    let mut texts = Vec::new();
    {
        let mut target = load(target, Lean::default())?;
        for prompt in PROMPTS {
            for temperature in TEMPERATURES {
                texts.push((temperature, target.write(prompt, temperature)?));
            }
        }
    }
    let mut contenders = vec![contender("all".to_owned(), draft, Lean::default())?];
    for count in [65_536, 32_768, 16_384, 8_192] {
        contenders.push(contender(count.to_string(), draft, restricted(count))?);
    }
    for encoding in encodings {
        let lean = Lean {
            encoding: Some(encoding.parse()?),
            ..restricted(32_768)
        };
        contenders.push(contender(format!("32768 {encoding}"), draft, lean)?);
    }
    compare(&mut contenders, &texts)?;
    report(&mut contenders, &texts)
}

fn restricted(count: usize) -> Lean {
    Lean {
        output: Some(FrequentIds { count, file: None }),
        ..Lean::default()
    }
}

fn contender(name: String, path: &str, lean: Lean) -> Result<Contender, Failed> {
    Ok(Contender {
        name,
        running: load(path, lean)?,
        step_ms: Vec::new(),
        agreed: [0, 0],
    })
}

fn load(path: &str, lean: Lean) -> Result<Running, Failed> {
    let options = LoadOptions {
        lean,
        ..LoadOptions::default()
    };
    let loaded: Result<_, LoadError> = engine::load(&Source::Files(path.into()), options);
    let engine::Loaded {
        mut model,
        vocabulary,
    } = loaded?;
    model.allocate(BLOCKS, CacheType::F32)?;
    let kv = model.shape().kv;
    Ok(Running {
        pool: Pool::new(kv, BLOCKS * kv.block_bytes()).with_sharing(false),
        tokenizer: Tokenizer::from_bytes(&vocabulary.tokenizer_json)?,
        model,
    })
}

/// A target's text, and where its prompt ends.
struct Text {
    tokens: Vec<TokenId>,
    prompt: usize,
}

impl Running {
    /// A text of the model's own.
    fn write(&mut self, prompt: &str, temperature: f32) -> Result<Text, Failed> {
        let prompt = format!("<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n");
        let mut tokens = self.tokenizer.encode(prompt, false)?.get_ids().to_vec();
        let prompt = tokens.len();
        let mut lease = self.pool.lease();
        while tokens.len() < prompt + TOKENS {
            let due = tokens[lease.len()..].to_vec();
            let row = self.step(&mut lease, &due, 1)?.remove(0);
            let token = sampler(temperature).choose(&row, tokens.len() as u64).token;
            tokens.push(token);
            if self
                .tokenizer
                .id_to_token(token)
                .is_some_and(|token| token == "<|im_end|>")
            {
                break;
            }
        }
        Ok(Text { tokens, prompt })
    }

    fn step(
        &mut self,
        lease: &mut Lease,
        tokens: &[TokenId],
        wanted: usize,
    ) -> Result<Vec<Vec<f32>>, Failed> {
        lease.reserve(tokens.len())?;
        let input = Input {
            blocks: lease.blocks(),
            start: lease.len(),
            tokens,
            wanted,
        };
        let logits = self.model.forward(&[input])?;
        lease.append(tokens);
        Ok(logits.rows().map(<[f32]>::to_vec).collect())
    }
}

fn sampler(temperature: f32) -> Sampler {
    let options = SamplingOptions {
        temperature,
        ..SamplingOptions::default()
    };
    Sampler {
        sampling: Sampling::new(options).expect("a valid temperature"),
        key: NoiseKey::from_seed(1),
    }
}

fn compare(contenders: &mut [Contender], texts: &[(f32, Text)]) -> Result<(), Failed> {
    for (temperature, text) in texts {
        let which = usize::from(*temperature > 0.0);
        for contender in &mut *contenders {
            let running = &mut contender.running;
            let mut lease = running.pool.lease();
            let wanted = text.tokens.len() - text.prompt + 1;
            let rows = running.step(&mut lease, &text.tokens, wanted)?;
            for (row, position) in rows.iter().zip(text.prompt..text.tokens.len()) {
                let choice = sampler(*temperature).choose(row, position as u64);
                contender.agreed[which] += usize::from(choice.token == text.tokens[position]);
            }
        }
    }
    let (_, text) = &texts[0];
    let mut leases = Vec::new();
    for contender in &mut *contenders {
        let mut lease = contender.running.pool.lease();
        contender.running.step(&mut lease, &text.tokens, 0)?;
        leases.push(lease);
    }
    for _ in 0..STEPS {
        for (contender, lease) in contenders.iter_mut().zip(&mut leases) {
            let start = Instant::now();
            let rows = contender.running.step(lease, &text.tokens[..1], 1)?;
            // As a draft worker does.
            let choice = sampler(0.8).choose(&rows[0], 7);
            contender.step_ms.push(start.elapsed().as_secs_f64() * 1e3);
            std::hint::black_box(choice);
        }
    }
    Ok(())
}

fn report(contenders: &mut [Contender], texts: &[(f32, Text)]) -> Result<(), Failed> {
    let mut positions = [0, 0];
    for (temperature, text) in texts {
        positions[usize::from(*temperature > 0.0)] += text.tokens.len() - text.prompt;
    }
    let mut out = std::io::stdout();
    writeln!(
        out,
        "{:16} {:>9} {:>7} {:>11} {:>11}",
        "draft", "ms a step", "ratio", "agree, T 0", "agree, T .8"
    )?;
    let mut first = None;
    for contender in contenders {
        contender.step_ms.sort_by(f64::total_cmp);
        let median = contender.step_ms[STEPS / 2];
        let ratio = median / *first.get_or_insert(median);
        let [cold, warm] =
            [0, 1].map(|which| contender.agreed[which] as f64 / positions[which] as f64);
        let name = &contender.name;
        writeln!(
            out,
            "{name:16} {median:9.2} {ratio:7.3} {cold:11.3} {warm:11.3}"
        )?;
    }
    Ok(())
}
