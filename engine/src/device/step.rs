//! What one step writes and attends, worked out once for all layers.
//!
//! Inputs of as many rows and about as many keys form one group, which attention computes with a
//! few large products: verification and decoding, of like rows, are one group or few. Knows only
//! places: rows, slots and blocks, never keys or values.

use super::sight::Sight;
use super::writes::Writes;
use crate::{KvLayout, cache::BLOCK_TOKENS};
use candle_core::{Device, Result, Tensor};
use std::collections::BTreeMap;

/// One input's part of the step.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// Its block table, as numbers of blocks.
    pub(super) blocks: Vec<u32>,
    /// Tokens that it holds already.
    pub(super) start: usize,
    /// Rows that it adds.
    pub(super) rows: usize,
}

/// The step.
pub(super) struct Step {
    pub(super) writes: Writes,
    pub(super) groups: Vec<Group>,
    /// For each row its place among the rows of all groups; `None` where they lie in order.
    pub(super) order: Option<Tensor>,
}

/// Inputs that attention computes together.
pub(super) struct Group {
    pub(super) inputs: usize,
    /// Rows of each.
    pub(super) rows: usize,
    /// Their rows in the batch; `None` where the group is the whole batch.
    pub(super) select: Option<Tensor>,
    /// What they attend to, for each window of the model.
    sights: Vec<(Option<usize>, Sight)>,
}

impl Step {
    /// The step that adds `places` to a cache of `layout`, for layers of these `windows`.
    pub(super) fn new(
        places: &[Place],
        layout: &KvLayout,
        windows: &[Option<usize>],
        device: &Device,
    ) -> Result<Self> {
        let firsts: Vec<usize> = places
            .iter()
            .scan(0, |next, place| {
                *next += place.rows;
                Some(*next - place.rows)
            })
            .collect();
        let mut alike: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for (index, place) in places
            .iter()
            .enumerate()
            .filter(|(_, place)| place.rows > 0)
        {
            let size = place.used_blocks().next_power_of_two();
            alike.entry((place.rows, size)).or_default().push(index);
        }
        let mut taken = Vec::new();
        let mut groups = Vec::with_capacity(alike.len());
        for indices in alike.values() {
            let rows = |&index: &usize| firsts[index]..firsts[index] + places[index].rows;
            let rows: Vec<u32> = indices.iter().flat_map(rows).map(number).collect();
            let members: Vec<&Place> = indices.iter().map(|&index| &places[index]).collect();
            groups.push(Group {
                inputs: members.len(),
                rows: members[0].rows,
                select: match alike.len() {
                    1 => None,
                    _ => Some(Tensor::new(rows.as_slice(), device)?),
                },
                sights: windows
                    .iter()
                    .map(|&window| Ok((window, Sight::new(&members, window, device)?)))
                    .collect::<Result<_>>()?,
            });
            taken.extend(rows);
        }
        Ok(Self {
            writes: Writes::new(places, layout, device)?,
            groups,
            order: restoring(&taken, device)?,
        })
    }
}

impl Group {
    /// What layers of this window attend to.
    pub(super) fn sight(&self, window: Option<usize>) -> Result<&Sight> {
        let found = self.sights.iter().find(|(known, _)| *known == window);
        found
            .map(|(_, sight)| sight)
            .ok_or_else(|| candle_core::Error::msg(format!("no layer has the window {window:?}")))
    }
}

/// The places that put rows taken in the order of `taken` back; `None` where that is in order.
fn restoring(taken: &[u32], device: &Device) -> Result<Option<Tensor>> {
    if taken.is_sorted() {
        return Ok(None);
    }
    let mut order = vec![0; taken.len()];
    for (place, &row) in taken.iter().enumerate() {
        order[row as usize] = number(place);
    }
    Tensor::new(order, device).map(Some)
}

impl Place {
    /// Tokens that it holds after the step.
    pub(super) fn end(&self) -> usize {
        self.start + self.rows
    }

    /// Blocks that hold them.
    pub(super) fn used_blocks(&self) -> usize {
        self.end().div_ceil(BLOCK_TOKENS)
    }

    /// Where the token at `position` lies.
    pub(super) fn slot(&self, position: usize) -> usize {
        self.blocks[position / BLOCK_TOKENS] as usize * BLOCK_TOKENS + position % BLOCK_TOKENS
    }
}

/// Devices count rows, slots and blocks in 32 bits; `Storage` takes no more.
pub(super) fn number(place: usize) -> u32 {
    u32::try_from(place).expect("a device's cache has fewer than 2^32 slots")
}
