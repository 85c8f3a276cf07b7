//! Where a step's keys and values go.

use super::step::{Place, number};
use crate::{KvLayout, cache::BLOCK_TOKENS};
use candle_core::{Device, Result, Tensor};

/// Runs of a block and more are copied, one call each. The others are scattered by one call, which
/// is slow for many rows: each of its threads goes over all of them.
pub(super) struct Writes {
    runs: Vec<Run>,
    scattered: Option<Scattered>,
}

/// Rows that follow each other in the batch and in the cache.
struct Run {
    row: usize,
    slot: usize,
    rows: usize,
}

struct Scattered {
    /// The rows, `None` where it is all of them.
    rows: Option<Tensor>,
    /// The slot of each number, `[kv_heads, rows, head_dim]`.
    slots: Tensor,
}

impl Writes {
    pub(super) fn new(places: &[Place], layout: &KvLayout, device: &Device) -> Result<Self> {
        let (runs, short): (Vec<Run>, Vec<Run>) = runs(places)
            .into_iter()
            .partition(|run| run.rows >= BLOCK_TOKENS);
        let scattered = match short.is_empty() {
            true => None,
            false => Some(Scattered::new(&short, runs.is_empty(), layout, device)?),
        };
        Ok(Self { runs, scattered })
    }

    /// Writes `rows`, `[kv_heads, rows, head_dim]`, into `all`, `[kv_heads, slots, head_dim]`.
    pub(super) fn apply(&self, rows: &Tensor, all: &Tensor) -> Result<()> {
        for run in &self.runs {
            let rows = rows.narrow(1, run.row, run.rows)?.contiguous()?;
            all.slice_set(&rows, 1, run.slot)?;
        }
        match &self.scattered {
            None => Ok(()),
            Some(Scattered { rows: None, slots }) => all.scatter_set(slots, rows, 1),
            Some(Scattered {
                rows: Some(select),
                slots,
            }) => all.scatter_set(slots, &rows.index_select(select, 1)?, 1),
        }
    }
}

fn runs(places: &[Place]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let slots = places
        .iter()
        .flat_map(|place| (place.start..place.end()).map(|position| place.slot(position)));
    for (row, slot) in slots.enumerate() {
        match runs.last_mut() {
            Some(run) if run.slot + run.rows == slot => run.rows += 1,
            _ => runs.push(Run { row, slot, rows: 1 }),
        }
    }
    runs
}

impl Scattered {
    fn new(runs: &[Run], all: bool, layout: &KvLayout, device: &Device) -> Result<Self> {
        let spread = |first: fn(&Run) -> usize| -> Vec<u32> {
            let numbers = runs
                .iter()
                .flat_map(|run| first(run)..first(run) + run.rows);
            numbers.map(number).collect()
        };
        let slots = spread(|run| run.slot);
        let shape = (layout.kv_heads, slots.len(), layout.head_dim);
        let slots = Tensor::new(slots, device)?.reshape((1, (), 1))?;
        Ok(Self {
            rows: match all {
                true => None,
                false => Some(Tensor::new(spread(|run| run.row), device)?),
            },
            slots: slots.broadcast_as(shape)?.contiguous()?,
        })
    }
}
