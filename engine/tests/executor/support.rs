//! A model that the test steers, and a plain reference to compare with.

use engine::{
    BlockId, CacheType, Engine, EngineError, EngineOptions, Input, KvLayout, Logits, Model,
    ModelShape, Pool, Reader, Row, Sequence, Synthetic,
};
use speculation::{
    AdjustmentOptions, Adjustments, Choice, NoiseKey, Prefix, Sampler, Sampling, SamplingOptions,
    TokenId,
};
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, mpsc as blocking},
    task::Poll,
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};

pub(crate) const VOCAB: usize = 512;

/// Bytes of a cache block in [`Steered`]'s layout, which has real blocks of 32 tokens.
pub(crate) const BLOCK: usize = LAYOUT.layers * 2 * LAYOUT.kv_heads * LAYOUT.head_dim * 32 * 4;
const LAYOUT: KvLayout = KvLayout {
    layers: 1,
    kv_heads: 1,
    head_dim: 1,
    kind: CacheType::F32,
};

/// What a steered model does at a step.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order {
    Run,
    Fail,
    Panic,
}

/// The synthetic model with a cache, which tells of each step before it computes it.
pub(crate) struct Steered {
    inner: Synthetic,
    shape: ModelShape,
    steps: mpsc::Sender<Vec<usize>>,
    orders: blocking::Receiver<Order>,
    /// Closes when the model is dropped.
    _alive: oneshot::Sender<()>,
}

/// The test's end of a [`Steered`] model.
pub(crate) struct Steering {
    /// The rows per sequence of each step that has begun.
    pub(crate) steps: mpsc::Receiver<Vec<usize>>,
    orders: Option<blocking::SyncSender<Order>>,
    alive: oneshot::Receiver<()>,
}

impl Steering {
    /// Waits until a step has begun, and returns its rows per sequence.
    pub(crate) async fn begun(&mut self) -> Vec<usize> {
        within(self.steps.recv()).await.expect("the model is alive")
    }

    /// Lets a step go on.
    pub(crate) fn order(&self, order: Order) {
        let orders = self.orders.as_ref().expect("not yet let go");
        orders.try_send(order).expect("room for an order");
    }

    /// Lets all steps from now on go on.
    pub(crate) fn let_go(&mut self) {
        self.orders = None;
    }

    /// Waits until the model is dropped.
    pub(crate) async fn dropped(&mut self) {
        within(&mut self.alive).await.expect_err("never sent");
    }
}

impl Model for Steered {
    fn shape(&self) -> &ModelShape {
        &self.shape
    }

    fn allocate(&mut self, blocks: usize, kind: CacheType) -> Result<(), EngineError> {
        self.inner.allocate(blocks, kind)
    }

    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<(), EngineError> {
        self.inner.copy_block(from, to)
    }

    fn forward(&mut self, batch: &[Input<'_>]) -> Result<Logits, EngineError> {
        let rows = batch.iter().map(|input| input.tokens.len()).collect();
        // A test that has seen enough has dropped its end.
        let _ = self.steps.try_send(rows);
        match self.orders.recv().unwrap_or(Order::Run) {
            Order::Run => self.inner.forward(batch),
            Order::Fail => {
                // As a model would that fails after some layers.
                self.inner.forward(batch)?;
                Err(EngineError::Model("as ordered".to_owned()))
            }
            Order::Panic => panic!("as ordered"),
        }
    }
}

pub(crate) fn options() -> EngineOptions {
    EngineOptions {
        max_sequences: 8,
        cache_bytes: 1 << 20,
        cache_type: CacheType::F32,
        prefix_sharing: false,
        max_step_tokens: 256,
        tokenizer_size: VOCAB,
    }
}

/// An engine over the synthetic model.
pub(crate) fn engine(options: EngineOptions) -> Engine {
    Engine::start(Box::new(synthetic()), options).expect("a thread")
}

/// An engine over a steered model.
pub(crate) fn steered(options: EngineOptions) -> (Engine, Steering) {
    let inner = synthetic();
    let (step, steps) = mpsc::channel(4096);
    let (order, orders) = blocking::sync_channel(64);
    let (alive, dropped) = oneshot::channel();
    let model = Steered {
        shape: ModelShape {
            kv: LAYOUT,
            ..inner.shape().clone()
        },
        inner,
        steps: step,
        orders,
        _alive: alive,
    };
    let steering = Steering {
        steps,
        orders: Some(order),
        alive: dropped,
    };
    let engine = Engine::start(Box::new(model), options).expect("a thread");
    (engine, steering)
}

fn synthetic() -> Synthetic {
    Synthetic::new("context=2048".parse().expect("a description"))
}

/// A sequence whose tokens a sampler chooses.
#[derive(Debug)]
pub(crate) struct Chooser {
    sequence: Sequence,
    sampler: Sampler,
}

/// Notes what a sampler chooses at each row.
#[derive(Debug)]
struct Choices {
    sampler: Sampler,
    choices: Vec<Choice>,
}

impl Reader for Choices {
    fn read(&mut self, mut row: Row<'_>) -> Result<Option<TokenId>, EngineError> {
        let choice = self.sampler.choose(&row.processed()?, row.position());
        self.choices.push(choice);
        Ok(Some(choice.token))
    }
}

impl Chooser {
    pub(crate) async fn score(
        &mut self,
        keep: usize,
        tokens: Vec<TokenId>,
        rows: usize,
    ) -> Result<Vec<Choice>, EngineError> {
        let reader = self.reader();
        let read = self.sequence.read(keep, tokens, rows, reader).await?;
        Ok(read.choices)
    }

    pub(crate) async fn generate(
        &mut self,
        keep: usize,
        tokens: Vec<TokenId>,
        count: usize,
    ) -> Result<Vec<Choice>, EngineError> {
        let reader = self.reader();
        let read = self.sequence.decode(keep, tokens, count, reader).await?;
        Ok(read.choices)
    }

    pub(crate) fn cached_len(&self) -> usize {
        self.sequence.cached_len()
    }

    fn reader(&self) -> Choices {
        Choices {
            sampler: self.sampler,
            choices: Vec::new(),
        }
    }
}

/// Opens a sequence whose tokens `sampler` chooses, from the model's own logits.
pub(crate) fn open(engine: &Engine, sampler: Sampler) -> Result<Chooser, EngineError> {
    open_adjusted(engine, sampler, AdjustmentOptions::default())
}

/// Opens a sequence whose tokens `sampler` chooses from adjusted logits.
pub(crate) fn open_adjusted(
    engine: &Engine,
    sampler: Sampler,
    adjustments: AdjustmentOptions,
) -> Result<Chooser, EngineError> {
    let adjustments = Adjustments::new(adjustments).expect("in range");
    let sequence = engine.open(Prefix::new(Arc::new(adjustments), None))?;
    Ok(Chooser { sequence, sampler })
}

pub(crate) fn sampler(temperature: f32, key: u128) -> Sampler {
    let options = SamplingOptions {
        temperature,
        ..SamplingOptions::default()
    };
    Sampler {
        sampling: Sampling::new(options).expect("in range"),
        key: NoiseKey(key),
    }
}

pub(crate) fn greedy() -> Sampler {
    sampler(0.0, 0)
}

/// `len` tokens that differ with `seed`.
pub(crate) fn prompt(seed: usize, len: usize) -> Vec<TokenId> {
    (0..len)
        .map(|i| ((seed * 131 + i * i * 7 + i * 3) % 510) as TokenId)
        .collect()
}

/// What `sampler` chooses after each of the last `rows` of `tokens`: one forward over all of them
/// in a cache of its own.
pub(crate) fn reference(sampler: Sampler, tokens: &[TokenId], rows: usize) -> Vec<Choice> {
    reference_adjusted(sampler, AdjustmentOptions::default(), tokens, rows)
}

/// As [`reference`], from logits that are adjusted to the tokens before each row.
pub(crate) fn reference_adjusted(
    sampler: Sampler,
    adjustments: AdjustmentOptions,
    tokens: &[TokenId],
    rows: usize,
) -> Vec<Choice> {
    let adjustments = Adjustments::new(adjustments).expect("in range");
    let mut model = synthetic();
    let pool = Pool::new(model.shape().kv, model.shape().kv.bytes_for(tokens.len()));
    let mut cache = pool.lease();
    let copy = cache.reserve(tokens.len()).expect("room");
    assert_eq!(copy, None, "there is nothing to copy");
    let input = Input {
        blocks: cache.blocks(),
        start: 0,
        tokens,
        wanted: rows,
    };
    let logits = model.forward(&[input]).expect("logits");
    let first = tokens.len() - rows + 1;
    logits
        .rows()
        .zip(first..)
        .map(|(row, position)| {
            let mut row = row.to_vec();
            adjustments.apply(&tokens[..position], &mut row);
            sampler.choose(&row, position as u64)
        })
        .collect()
}

/// `future`'s output; fails the test where it hangs.
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("no hang")
}

/// Polls `future` once: a call has sent its command then.
pub(crate) async fn begin<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    std::future::poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    future
}
