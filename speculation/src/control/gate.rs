//! Whether to speculate at all.

use super::Plan;

/// Speculation begins where it promises so much more than plain decoding: enough for the errors of
/// what was measured, and for the rounds that it takes to find out that it does not hold.
const ON: f64 = 1.04;

/// It ends below this: what brings less is not worth a draft worker's time, and within the error of
/// an estimate from some 64 rounds it might be a loss. The promise is never below .98 of plain.
const OFF: f64 = 1.02;

/// It ends after so many decisions in a row that say so, lest one bad round end it.
const PATIENCE: u32 = 3;

/// A new sequence does not even try what promises less than this.
const HOPELESS: f64 = 0.85;

/// But it does try what may give this much: what was measured long ago is no ground to leave it.
const HOPEFUL: f64 = 1.2;

/// Rounds without speculation before a probe.
const PROBE_AFTER: u32 = 64;

/// The same where what is known is nearly enough to begin.
const ENCOURAGING: f64 = OFF;
const PROBE_SOON: u32 = 16;

/// Rounds that speculation stays off for, at first and at most. Doubled each time that it did not
/// stay on for [`PROVEN`] rounds: what looks good only from outside is tried less and less often.
const FIRST_PAUSE: u32 = 64;
const LONGEST_PAUSE: u32 = 256;

/// After so many rounds of speculation it was right to begin.
const PROVEN: u32 = 512;

/// What a sequence does in its next round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Plain decoding: no draft is asked.
    Off,
    /// What the plan says.
    On,
    /// Plain decoding, and a proposal is asked for that nothing waits for: it is compared with what
    /// is committed meanwhile.
    Probe,
}

/// A sequence's switch between plain decoding and speculation: with hysteresis, so that it does
/// not flap, and with probes, so that it learns when a draft has become good.
///
/// One decision per round. It begins with speculation where nothing is known: plain decoding teaches
/// nothing of drafts.
#[derive(Debug, Clone)]
pub struct Gate {
    on: bool,
    /// Decisions since it was switched.
    since: u32,
    since_probe: u32,
    /// Decisions in a row that speak against speculation.
    against: u32,
    pause: u32,
    switches: u32,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// Open.
    pub fn new() -> Self {
        Self {
            on: true,
            since: 0,
            since_probe: 0,
            against: 0,
            pause: FIRST_PAUSE,
            switches: 0,
        }
    }

    /// Decides on the next round.
    pub fn decide(&mut self, plan: &Plan) -> Mode {
        self.since = self.since.saturating_add(1);
        if self.on {
            self.decide_on(plan)
        } else {
            self.decide_off(plan)
        }
    }

    fn decide_on(&mut self, plan: &Plan) -> Mode {
        if self.since == PROVEN {
            self.pause = FIRST_PAUSE;
        }
        if plan.known && plan.plain_known && plan.rate < OFF * plan.plain_rate {
            self.against += 1;
        } else {
            self.against = 0;
        }
        // What the first plan says is known of other sequences, and texts differ much: only what is clearly
        // worse is not tried.
        let first = self.since == 1 && self.switches == 0;
        let hopeless = first
            && self.against > 0
            && plan.rate < HOPELESS * plan.plain_rate
            && plan.hope < HOPEFUL * plan.plain_rate;
        if self.against >= PATIENCE || hopeless || plan.want == 0 {
            self.switch(false);
            return Mode::Off;
        }
        Mode::On
    }

    fn decide_off(&mut self, plan: &Plan) -> Mode {
        self.since_probe += 1;
        let good = plan.known && plan.rate >= ON * plan.plain_rate;
        if (good || !plan.known) && plan.want > 0 && self.since > self.pause {
            self.switch(true);
            return Mode::On;
        }
        let encouraged = plan.rate >= ENCOURAGING * plan.plain_rate;
        let probe_after = if encouraged { PROBE_SOON } else { PROBE_AFTER };
        if plan.want > 0 && self.since_probe >= probe_after {
            self.since_probe = 0;
            return Mode::Probe;
        }
        Mode::Off
    }

    fn switch(&mut self, on: bool) {
        if !on && self.since < PROVEN && self.switches > 0 {
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
        self.on = on;
        self.switches += 1;
        (self.since, self.since_probe, self.against) = (0, 0, 0);
    }

    /// True while it speculates.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// How often it was switched.
    pub fn switches(&self) -> u32 {
        self.switches
    }
}
