//! The parameters that chats and completions share, as the service has them.

use super::bodies::{Parameters, StreamOptions};
use super::error::Failure;
use super::fields::Rename;
use proto::v1::{GenerateRequest, SamplingParams, StopParams};
use sha2::{Digest as _, Sha256};

/// The longest name of a user that is a tenant's name as it is.
const MAX_TENANT_BYTES: usize = 64;

impl Parameters {
    /// Puts everything into `request` but what says how the answer is written; what this body calls
    /// its fields goes to `own`.
    ///
    /// # Errors
    /// Names a field that cannot be put there.
    pub(super) fn fill(
        mut self,
        request: &mut GenerateRequest,
        own: &mut Vec<Rename>,
    ) -> Result<(), Failure> {
        request.model = self.model.take().unwrap_or_default();
        request.sampling = Some(self.sampling()?);
        request.stop = Some(self.stopping());
        request.structured = self.structured(own)?;
        request.speculation = Some(self.speculation()?);
        request.seed = self.seed.map(|seed| seed.0);
        request.n = self.n;
        request.bad_words = self.bad_words.unwrap_or_default();
        request.tenant = self.user.map(tenant).unwrap_or_default();
        request.priority = priority(self.priority)?;
        Ok(())
    }

    fn sampling(&mut self) -> Result<SamplingParams, Failure> {
        let top_k = self.top_k.map(|k| all_at(-1, k, "top_k")).transpose()?;
        let window = self.repeat_last_n;
        let window = window.map(|n| all_at(-1, n, "repeat_last_n")).transpose()?;
        let penalised = self.repeat_last_n != Some(0);
        Ok(SamplingParams {
            temperature: self.temperature,
            top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical_p,
            repetition_penalty: self.repetition_penalty.filter(|_| penalised),
            presence_penalty: self.presence_penalty.filter(|_| penalised),
            frequency_penalty: self.frequency_penalty.filter(|_| penalised),
            penalty_window: window,
            logit_bias: self.logit_bias.take().unwrap_or_default(),
            allowed_token_ids: self.allowed_token_ids.take().unwrap_or_default(),
            banned_token_ids: self.banned_token_ids.take().unwrap_or_default(),
        })
    }

    fn stopping(&mut self) -> StopParams {
        StopParams {
            max_tokens: self.max_tokens,
            ignore_eos: self.ignore_eos.unwrap_or_default(),
            min_tokens: self.min_tokens,
            token_ids: self.stop_token_ids.take().unwrap_or_default(),
            strings: self.stop.take().map(Into::into).unwrap_or_default(),
            include_stop_string: self.include_stop_str_in_output.unwrap_or_default(),
        }
    }

    /// How the answer is streamed; `None` where it comes whole.
    ///
    /// # Errors
    /// Where options of a stream come without one.
    pub(super) fn streaming(&self) -> Result<Option<StreamOptions>, Failure> {
        match (self.stream.unwrap_or_default(), self.stream_options) {
            (true, options) => Ok(Some(options.unwrap_or_default())),
            (false, None) => Ok(None),
            (false, Some(_)) => {
                let message = "can be given only together with stream";
                Err(Failure::invalid("stream_options", message))
            }
        }
    }
}

/// `value`, which `field` has, where `all` stands for 0: no limit.
fn all_at(all: i64, value: i64, field: &str) -> Result<u32, Failure> {
    if value == all {
        return Ok(0);
    }
    u32::try_from(value).map_err(|_| {
        let message = format!("must be {all} to {}, not {value}", u32::MAX);
        Failure::invalid(field, message)
    })
}

/// Where vLLM has the lower number go first, we have the higher.
fn priority(stated: Option<i32>) -> Result<i32, Failure> {
    let stated = stated.unwrap_or_default();
    if !(-100..=100).contains(&stated) {
        let message = format!("must be -100 to 100, not {stated}");
        return Err(Failure::invalid("priority", message));
    }
    Ok(-stated)
}

/// A tenant's name for `user`: where it is too long, its hash, so that no two become one.
fn tenant(user: String) -> String {
    if user.len() <= MAX_TENANT_BYTES {
        return user;
    }
    let hash = Sha256::digest(user.as_bytes());
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_users_stay_apart_within_the_length_of_a_tenant() {
        let user = |last: &str| tenant("x".repeat(80) + last);
        assert_eq!(tenant("me".to_owned()), "me");
        assert_eq!(user("a").len(), MAX_TENANT_BYTES);
        assert_ne!(user("a"), user("b"));
    }

    #[test]
    fn no_window_is_no_penalty_and_all_is_all() {
        let sampling = |repeat_last_n| {
            let mut parameters = Parameters {
                repeat_last_n: Some(repeat_last_n),
                presence_penalty: Some(1.0),
                ..Parameters::default()
            };
            let sampling = parameters.sampling().ok()?;
            Some((sampling.penalty_window, sampling.presence_penalty))
        };
        assert_eq!(sampling(0), Some((Some(0), None)));
        assert_eq!(sampling(-1), Some((Some(0), Some(1.0))));
        assert_eq!(sampling(16), Some((Some(16), Some(1.0))));
        assert_eq!(sampling(-2), None);
    }

    #[test]
    fn the_lower_priority_goes_first_as_in_vllm() {
        assert_eq!(priority(Some(-5)).ok(), Some(5));
        assert!(priority(Some(i32::MIN)).is_err());
    }
}
