//! What a step costs, by its size, as measured.

use super::monotone::{interpolate, monotone};

/// The sizes that get a measurement each; sizes in between go to the nearest by ratio. Close enough
/// that a batch with two or three drafted tokens does not count as one without.
const BUCKETS: [usize; 42] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 24, 28, 32, 36, 40, 48, 56, 64, 72, 80, 96,
    112, 128, 144, 160, 192, 224, 256, 288, 320, 384, 448, 512, 576, 640, 768, 1024,
];

/// Steps that a measurement remembers.
const MEMORY: f64 = 16.0;

/// A measurement that no step renewed for so many steps moves along with those that are renewed.
const FRESH: u64 = 64;

/// What was seen within so many steps sees a jump itself.
const JUST_SEEN: u64 = 16;

/// Three steps in a row that differ by more than this factor from what was measured are the new
/// measure: something has changed.
const JUMP: f64 = 1.25;

/// Steps over which what was measured is given up, mostly, for what other measurements let expect.
const DRIFT: f64 = 384.0;

/// How much a single step counts against others that contradict it: the first of its size may be slow.
const ONCE: f64 = 0.1;

/// What is moved along stays within this factor of what was measured. Each jump may be noise, and
/// noise over noise would carry what is long out of use anywhere.
const CARRIED: f64 = 8.0;

/// The measured time of a step by its size: rows of a verification, or sequences that a draft step
/// advances.
///
/// - A single step out of line changes nothing: what is averaged is the median of the last three.
/// - Between measured sizes it interpolates; beyond the largest it goes on as between the smallest
///   and the largest, and below the smallest it is constant.
/// - It never decreases with size: where measurements say so, they are averaged, those long ago
///   counting little.
/// - A measurement that has not been renewed for long moves by the ratio by which fresh ones moved,
///   and slowly down to what they let expect: a size out of use does not keep the speed of another
///   hour.
#[derive(Debug, Clone, Default)]
pub struct StepCosts {
    points: Vec<Point>,
    /// Size and seconds, ascending in both. Derived from the points.
    curve: Vec<(f64, f64)>,
    steps: u64,
}

#[derive(Debug, Clone)]
struct Point {
    bucket: usize,
    size: f64,
    seconds: f64,
    /// What it was when a step last measured it.
    measured: f64,
    /// The last three measured, the newest last.
    last: [f64; 3],
    count: u64,
    /// The step that measured it last.
    seen: u64,
    /// The step that moved it along with a jump.
    carried: u64,
}

/// Takes in a verification of `rows`, either while drafts were computed ahead or without.
///
/// The two kinds are measured apart, but not independently: of the kind that was not used, time
/// passes. Its measurements become old, and those with drafts ahead drift to those without, so that
/// drafting ahead is tried again some time after it was found to slow verification down.
pub fn observe_verification(
    without: &mut StepCosts,
    with: &mut StepCosts,
    rows: usize,
    seconds: f64,
    drafting_ahead: bool,
) {
    if drafting_ahead {
        with.observe(rows, seconds);
        without.steps += 1;
    } else {
        without.observe(rows, seconds);
        with.drift_to(without);
    }
}

impl StepCosts {
    /// Nothing measured.
    pub fn new() -> Self {
        Self::default()
    }

    /// A step of `size` took `seconds`. What cannot be is left out.
    pub fn observe(&mut self, size: usize, seconds: f64) {
        if size == 0 || !seconds.is_finite() || seconds < 0.0 {
            return;
        }
        self.steps += 1;
        let bucket = bucket(size);
        let steps = self.steps;
        match self
            .points
            .binary_search_by_key(&bucket, |point| point.bucket)
        {
            Ok(index) => {
                let moved = self.points[index].observe(size, seconds, steps);
                self.carry_along(index, moved);
            }
            Err(index) => {
                let point = Point::new(bucket, size, seconds, steps);
                self.points.insert(index, point);
            }
        }
        self.derive();
    }

    fn drift_to(&mut self, other: &StepCosts) {
        self.steps += 1;
        for point in &mut self.points {
            if let Some(seconds) = other.seconds(point.size.round() as usize) {
                point.seconds += (seconds - point.seconds) / DRIFT;
            }
        }
        self.derive();
    }

    fn derive(&mut self) {
        let steps = self.steps;
        let measured = self
            .points
            .iter()
            .map(|point| (point.seconds, point.weight(steps)));
        let seconds = monotone(measured);
        let sizes = self.points.iter().map(|point| point.size);
        self.curve = sizes.zip(seconds).collect();
    }

    /// What a step of `size` takes, in seconds. `None` before anything was measured.
    pub fn seconds(&self, size: usize) -> Option<f64> {
        extrapolate(&self.curve, size.max(1) as f64)
    }

    /// True where a size close to this one was measured lately, so that [`StepCosts::seconds`] is
    /// no guess.
    pub fn is_known(&self, size: usize) -> bool {
        let bucket = bucket(size.max(1));
        self.points
            .iter()
            .any(|point| point.bucket == bucket && point.is_known(self.steps))
    }

    /// True where a step of this size or more was measured just now: what is said of large steps
    /// is no tale of another hour.
    pub fn is_recent(&self, size: usize) -> bool {
        self.points.iter().any(|point| {
            point.size >= size as f64 && point.count >= 2 && point.is_fresh(self.steps)
        })
    }

    /// What is out of use moves with what is in use, by the ratio by which a measurement moved.
    ///
    /// After a jump that is what has not been seen since it may have happened, and once: others that
    /// jump after it have seen the same. What moves slowly has its share among all that are in use.
    /// And slowly, what is out of use drifts down to what the others let expect: what was once found
    /// too slow is tried again at times.
    fn carry_along(&mut self, index: usize, moved: Moved) {
        let steps = self.steps;
        let fresh: Vec<(f64, f64)> = self
            .points
            .iter()
            .filter(|point| point.is_fresh(steps))
            .map(|point| (point.size, point.seconds))
            .collect();
        let share = moved.ratio.powf(1.0 / fresh.len().max(1) as f64);
        for (_, point) in self
            .points
            .iter_mut()
            .enumerate()
            .filter(|(at, _)| *at != index)
        {
            if moved.jumped {
                if steps - point.seen.max(point.carried) > JUST_SEEN {
                    point.carry(moved.ratio);
                    point.carried = steps;
                }
            } else if !point.is_fresh(steps) {
                point.carry(share);
                let expected = extrapolate(&fresh, point.size).unwrap_or(point.seconds);
                point.seconds += (expected - point.seconds).min(0.0) / DRIFT;
            }
        }
    }
}

/// How a measurement moved.
struct Moved {
    ratio: f64,
    jumped: bool,
}

impl Point {
    fn new(bucket: usize, size: usize, seconds: f64, steps: u64) -> Self {
        Self {
            bucket,
            size: size as f64,
            seconds,
            measured: seconds,
            last: [seconds; 3],
            count: 1,
            seen: steps,
            carried: 0,
        }
    }

    fn observe(&mut self, size: usize, seconds: f64, steps: u64) -> Moved {
        let before = self.seconds;
        if !self.is_fresh(steps) {
            // It has been guessed since, and begins anew from that.
            self.count = 1;
            self.last = [self.seconds; 3];
        }
        self.count += 1;
        self.last = [self.last[1], self.last[2], seconds];
        self.seen = steps;
        let weight = 1.0 / MEMORY.min(self.count as f64);
        self.size += (size as f64 - self.size) * weight;
        let [low, median, high] = sorted(self.last);
        let changed = low > self.seconds * JUMP || high * JUMP < self.seconds;
        self.seconds = match self.count {
            // The first of all may be the one out of line, and a step is rarely too short.
            2 => self.last[1].min(seconds),
            3 => median,
            _ if changed => median,
            _ => self.seconds + (median - self.seconds) * weight,
        };
        if self.count > 2 {
            self.measured = median;
        }
        // What a guess is corrected by says nothing of others.
        let ratio = self.seconds / before;
        let moved = self.count > 3 && ratio.is_normal();
        Moved {
            ratio: if moved { ratio } else { 1.0 },
            jumped: moved && changed,
        }
    }

    /// Moves by `ratio` what no step has renewed.
    fn carry(&mut self, ratio: f64) {
        let (least, most) = (self.measured / CARRIED, self.measured * CARRIED);
        self.seconds = (self.seconds * ratio).clamp(least, most);
    }

    fn is_fresh(&self, steps: u64) -> bool {
        steps - self.seen < FRESH
    }

    fn is_known(&self, steps: u64) -> bool {
        self.count >= 2 && steps - self.seen < 4 * FRESH
    }

    /// How much it counts against others that contradict it.
    fn weight(&self, steps: u64) -> f64 {
        let age = (steps - self.seen) as f64;
        let certain = match self.count {
            1 => ONCE,
            count => MEMORY.min(count as f64),
        };
        certain * 0.5_f64.powf(age / FRESH as f64).max(1e-6)
    }
}

/// The value at `size` of the line through `curve`, which goes on beyond its last point as between
/// the first and the last.
fn extrapolate(curve: &[(f64, f64)], size: f64) -> Option<f64> {
    let (first, last) = (curve.first()?, curve.last()?);
    if size <= last.0 {
        return interpolate(curve, size);
    }
    let slope = if last.0 > first.0 {
        ((last.1 - first.1) / (last.0 - first.0)).max(0.0)
    } else {
        0.0
    };
    Some(last.1 + (size - last.0) * slope)
}

fn bucket(size: usize) -> usize {
    let ratio = |bucket: usize| (bucket as f64 / size as f64).ln().abs();
    let nearest = BUCKETS
        .iter()
        .copied()
        .min_by(|a, b| ratio(*a).total_cmp(&ratio(*b)));
    nearest.unwrap_or(1)
}

fn sorted(mut values: [f64; 3]) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    values
}
