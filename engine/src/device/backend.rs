//! A decoder's operations on a device, by candle's.

use super::attention::{Heads, MAX_SCORES};
use super::matrix::{Matrix, Stack};
use super::step::{Place, Step as Places};
use super::storage::Storage;
use super::{Device, WeightType};
use crate::decoder::{Attention, Backend, Norm};
use crate::{Activation, BlockId, CacheType, DecoderConfig, Input, KvLayout, Rope, RopePairs};
use candle_core::quantized::QTensor;
use candle_core::{DType, Error, Result, Tensor};
use candle_nn::ops::{rms_norm, silu};
use candle_nn::rotary_emb::{rope, rope_i};

/// Computes with candle's tensors.
pub(crate) struct Tensors {
    device: candle_core::Device,
    held: WeightType,
    /// Once it is allocated.
    cache: Option<Storage>,
}

/// What all layers need to know of a step.
pub(crate) struct Step {
    places: Places,
    pairs: RopePairs,
    /// For each of the model's rotations, cosines and sines of each row: `[rows][1][pairs]`.
    rotations: Vec<[Tensor; 2]>,
}

impl Tensors {
    /// On `device`, with matrices held as `held`.
    pub(crate) fn new(device: &Device, held: WeightType) -> Self {
        Self {
            device: device.candle().clone(),
            held,
            cache: None,
        }
    }

    fn cache(&self) -> Result<&Storage> {
        let cache = self.cache.as_ref();
        cache.ok_or_else(|| Error::Msg("the cache is not allocated".to_owned()))
    }

    /// How numbers of the cache are stored.
    fn cache_dtype(&self, kind: CacheType) -> Result<DType> {
        match kind {
            CacheType::F32 => Ok(DType::F32),
            // Models that were trained in it may have larger numbers than the other 16 bits hold.
            CacheType::F16 if self.held == WeightType::Bf16 => Ok(DType::BF16),
            CacheType::F16 => Ok(DType::F16),
            CacheType::Q8 => Err(Error::Msg(
                "a cache of type q8 is known on the cpu only; a device takes f32 or f16".to_owned(),
            )),
        }
    }

    fn rotation(&self, rope: &Rope, places: &[Place]) -> Result<[Tensor; 2]> {
        let positions = places.iter().flat_map(|place| place.start..place.end());
        let angles: Vec<f32> = positions
            .flat_map(|position| rope.frequencies.iter().map(move |f| position as f32 * f))
            .collect();
        let shape = (
            angles.len() / rope.frequencies.len(),
            1,
            rope.frequencies.len(),
        );
        let tensor = |of: fn(f32) -> f32| {
            let values = angles
                .iter()
                .map(|&angle| rope.magnitude * of(angle))
                .collect();
            Tensor::from_vec(values, shape, &self.device)
        };
        Ok([tensor(f32::cos)?, tensor(f32::sin)?])
    }
}

impl Backend for Tensors {
    type Vector = Tensor;
    type Matrix = Matrix;
    type Stack = Stack;
    type Embedding = Matrix;
    type Rows = Tensor;
    type Parts<'w> = Vec<Tensor>;
    type Step<'b> = Step;

    fn vector(&self, values: Vec<f32>) -> Result<Tensor> {
        let len = values.len();
        Tensor::from_vec(values, len, &self.device)
    }

    fn matrix(&self, weight: QTensor) -> Result<Matrix> {
        Matrix::new(&weight, self.held, &self.device)
    }

    fn stack(&self, weights: Vec<QTensor>) -> Result<Stack> {
        Stack::new(&weights, self.held, &self.device)
    }

    fn embedding(&self, embedding: QTensor, output: Option<QTensor>) -> Result<(Matrix, Matrix)> {
        let embedding = self.matrix(embedding)?;
        let output = match output {
            Some(output) => self.matrix(output)?,
            None => embedding.clone(),
        };
        Ok((embedding, output))
    }

    fn allocate(&mut self, layout: KvLayout, blocks: usize) -> Result<()> {
        let dtype = self.cache_dtype(layout.kind)?;
        self.cache = Some(Storage::new(layout, blocks, dtype, &self.device)?);
        Ok(())
    }

    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<()> {
        self.cache()?.copy_block(from.index(), to.index())
    }

    fn begin<'b>(&self, config: &DecoderConfig, batch: &'b [Input<'b>]) -> Result<Step> {
        let places: Vec<Place> = batch
            .iter()
            .map(|input| Place {
                blocks: input
                    .blocks
                    .iter()
                    .map(|block| block.index() as u32)
                    .collect(),
                start: input.start,
                rows: input.tokens.len(),
            })
            .collect();
        let mut windows: Vec<_> = config.layers.iter().map(|layer| layer.window).collect();
        windows.sort_unstable();
        windows.dedup();
        let rotations = config.ropes.iter().map(|rope| self.rotation(rope, &places));
        Ok(Step {
            rotations: rotations.collect::<Result<_>>()?,
            pairs: config.rope_pairs,
            places: Places::new(&places, self.cache()?.layout(), &windows, &self.device)?,
        })
    }

    fn embed(&self, embedding: &Matrix, batch: &[Input<'_>], scale: f32) -> Result<Tensor> {
        let tokens: Vec<u32> = batch
            .iter()
            .flat_map(|input| input.tokens)
            .copied()
            .collect();
        let rows = embedding.rows(&Tensor::new(tokens, &self.device)?)?;
        if scale == 1.0 {
            Ok(rows)
        } else {
            rows * f64::from(scale)
        }
    }

    fn norm(&self, norm: &Norm<Tensor>, rows: &Tensor) -> Result<Tensor> {
        rms_norm(rows, &norm.weight, norm.epsilon)
    }

    fn product(&self, matrix: &Matrix, rows: &Tensor) -> Result<Tensor> {
        matrix.forward(rows)
    }

    fn products(&self, stack: &Stack, rows: &Tensor) -> Result<Vec<Tensor>> {
        stack.forward(rows)
    }

    fn place(
        &mut self,
        step: &Step,
        attention: &Attention<Tensor>,
        qkv: &mut Vec<Tensor>,
    ) -> Result<()> {
        for (part, bias) in qkv.iter_mut().zip(attention.bias.iter().flatten()) {
            *part = part.broadcast_add(bias)?;
        }
        let [cos, sin] = &step.rotations[attention.rope];
        for (index, part) in qkv[..2].iter_mut().enumerate() {
            let shape = part.shape().clone();
            let mut heads = part.reshape(((), attention.head_dim))?;
            if let Some(norms) = &attention.head_norms {
                heads = self.norm(&norms[index], &heads)?;
            }
            // Every row is a sequence of one token to candle, with a rotation of its own.
            let heads = heads.reshape((shape.dims()[0], (), 1, attention.head_dim))?;
            let turned = match step.pairs {
                RopePairs::Interleaved => rope_i(&heads, cos, sin),
                RopePairs::Halves => rope(&heads, cos, sin),
            };
            *part = turned?.reshape(shape)?;
        }
        let writes = &step.places.writes;
        self.cache()?
            .write(attention.layer, writes, &qkv[1], &qkv[2])
    }

    fn attend(
        &self,
        step: &Step,
        attention: &Attention<Tensor>,
        qkv: &Vec<Tensor>,
    ) -> Result<Tensor> {
        let heads = Heads {
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            head_dim: attention.head_dim,
            scale: attention.scale,
            window: attention.window,
            most_scores: MAX_SCORES,
        };
        heads.attend(&qkv[0], attention.layer, &step.places, self.cache()?)
    }

    fn gate(&self, activation: Activation, gate_up: &Vec<Tensor>, _width: usize) -> Result<Tensor> {
        let gate = match activation {
            Activation::Silu => silu(&gate_up[0])?,
            Activation::GeluTanh => gate_up[0].gelu()?,
        };
        gate * &gate_up[1]
    }

    fn add(&self, sum: &mut Tensor, rows: &Tensor) -> Result<()> {
        *sum = (&*sum + rows)?;
        Ok(())
    }

    fn select(&self, rows: Tensor, indices: &[usize]) -> Result<Tensor> {
        if indices.len() == rows.dim(0)? {
            return Ok(rows);
        }
        let indices: Vec<u32> = indices.iter().map(|&index| index as u32).collect();
        rows.index_select(&Tensor::new(indices, &self.device)?, 0)
    }

    fn read(&self, rows: Tensor) -> Result<Vec<f32>> {
        rows.flatten_all()?.to_vec1()
    }
}
