//! A real decoder behind the engine, with counts of what it is asked for.

use crate::support::{VOCAB, options, prompt};
use engine::tiny::TinyModel;
use engine::{
    BlockId, CacheType, Engine, EngineError, EngineOptions, Input, LoadOptions, Logits, Model,
    ModelShape, Pool, Reader, Row, Sequence, Source,
};
use speculation::{AdjustmentOptions, Adjustments, Prefix, TokenId};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// What a model was asked for.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    rows: AtomicUsize,
    copies: AtomicUsize,
    copies_fail: AtomicBool,
}

impl Counts {
    /// Rows since the last time.
    pub(crate) fn take_rows(&self) -> usize {
        self.rows.swap(0, Ordering::SeqCst)
    }

    pub(crate) fn copies(&self) -> usize {
        self.copies.load(Ordering::SeqCst)
    }

    /// Has the model fail at copies from now on, or not.
    pub(crate) fn let_copies_fail(&self, fail: bool) {
        self.copies_fail.store(fail, Ordering::SeqCst);
    }
}

struct Counted {
    inner: Box<dyn Model>,
    counts: Arc<Counts>,
}

impl Model for Counted {
    fn shape(&self) -> &ModelShape {
        self.inner.shape()
    }

    fn allocate(&mut self, blocks: usize, kind: CacheType) -> Result<(), EngineError> {
        self.inner.allocate(blocks, kind)
    }

    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<(), EngineError> {
        self.counts.copies.fetch_add(1, Ordering::SeqCst);
        if self.counts.copies_fail.load(Ordering::SeqCst) {
            return Err(EngineError::Model("as ordered".to_owned()));
        }
        self.inner.copy_block(from, to)
    }

    fn forward(&mut self, batch: &[Input<'_>]) -> Result<Logits, EngineError> {
        let rows = batch.iter().map(|input| input.tokens.len()).sum();
        self.counts.rows.fetch_add(rows, Ordering::SeqCst);
        self.inner.forward(batch)
    }
}

/// A decoder of two layers with random weights.
pub(crate) fn decoder() -> Box<dyn Model> {
    let path = tempfile::NamedTempFile::new().expect("a file");
    TinyModel::default().write(path.path()).expect("written");
    let options = LoadOptions {
        batch_invariant: true,
    };
    let source = Source::Files(path.path().to_owned());
    engine::load(&source, options).expect("a model").model
}

/// `len` tokens of [`decoder`]'s that differ with `seed`.
pub(crate) fn text(seed: usize, len: usize) -> Vec<TokenId> {
    prompt(seed, len).iter().map(|token| token % 300).collect()
}

/// Options with room for so many blocks of [`decoder`]'s in type `kind`.
pub(crate) fn with_blocks(blocks: usize, kind: CacheType) -> EngineOptions {
    let mut layout = decoder().shape().kv;
    layout.kind = kind;
    EngineOptions {
        cache_bytes: blocks * layout.block_bytes(),
        cache_type: kind,
        prefix_sharing: true,
        ..options()
    }
}

/// An engine over [`decoder`].
pub(crate) fn counted(options: EngineOptions) -> (Engine, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let model = Counted {
        inner: decoder(),
        counts: Arc::clone(&counts),
    };
    let engine = Engine::start(Box::new(model), options).expect("a thread");
    (engine, counts)
}

pub(crate) fn open(engine: &Engine) -> Sequence {
    let adjustments = Adjustments::new(AdjustmentOptions::default()).expect("in range");
    let prefix = Prefix::new(Arc::new(adjustments), None);
    engine.open(prefix).expect("room")
}

/// Notes the bits of the logits, and goes on with the likeliest token.
#[derive(Debug, Default)]
pub(crate) struct Noting(pub(crate) Vec<Vec<u32>>);

impl Reader for Noting {
    fn read(&mut self, row: Row<'_>) -> Result<Option<TokenId>, EngineError> {
        self.0.push(bits(row.logits()));
        Ok(Some(likeliest(row.logits())))
    }
}

pub(crate) fn likeliest(logits: &[f32]) -> TokenId {
    let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
    best.expect("logits") as TokenId
}

fn bits(logits: &[f32]) -> Vec<u32> {
    let known = &logits[..VOCAB.min(logits.len())];
    known.iter().map(|logit| logit.to_bits()).collect()
}

/// A model beside the engine's, which computes every text as a whole.
pub(crate) struct Whole(Box<dyn Model>);

impl Whole {
    pub(crate) fn new(kind: CacheType) -> Self {
        let mut model = decoder();
        model.allocate(64, kind).expect("room");
        Self(model)
    }

    /// The bits of the logits after the last `rows` of `tokens`.
    pub(crate) fn bits(&mut self, tokens: &[TokenId], rows: usize) -> Vec<Vec<u32>> {
        let pool = Pool::new(self.0.shape().kv, 64 * self.0.shape().kv.block_bytes());
        let mut cache = pool.lease();
        assert_eq!(cache.reserve(tokens.len()), Ok(None));
        let input = Input {
            blocks: cache.blocks(),
            start: 0,
            tokens,
            wanted: rows,
        };
        let logits = self.0.forward(&[input]).expect("logits");
        logits.rows().map(bits).collect()
    }
}
