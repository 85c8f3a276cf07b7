use super::*;
use crate::access::Limits;
use crate::telemetry::Board;
use crate::testing;
use admission::Capacity;
use proto::v1::{Prompt, TokenIds, prompt};
use speculation::{LogprobsMode, Rule};
use tokio::sync::watch::{self, Sender};
use tokio::time::Instant;

fn request(n: u32) -> GenerateRequest {
    let ids = TokenIds { ids: vec![1] };
    GenerateRequest {
        prompt: Some(Prompt {
            prompt: Some(prompt::Prompt::TokenIds(ids)),
        }),
        n: Some(n),
        ..GenerateRequest::default()
    }
}

/// An api for three choices at once and one that waits, and what must be kept for it.
fn api(
    wait: Duration,
) -> (
    Arc<Api>,
    mpsc::Receiver<Admission>,
    Sender<Option<Arc<Model>>>,
) {
    let (publish, served) = watch::channel(Some(testing::shared_model()));
    let (admissions, admitted) = mpsc::channel(3);
    let capacity = Capacity {
        running: 3,
        waiting: 1,
        tokens: Some(1000),
    };
    let api = Api {
        deployments: Deployments::new(served, admissions, Board::default().subscribe()),
        gate: Gate::new(capacity, wait),
        checks: Checks::new(),
        lookups: Semaphore::new(LOOKUPS),
        defaults: Defaults {
            max_draft_tokens: 3,
            min_draft_tokens: 0,
            min_confidence: None,
            rule: Rule::Coupled,
            logprobs: LogprobsMode::Raw,
            max_requests: 3,
        },
    };
    (Arc::new(api), admitted, publish)
}

/// Long enough for whatever is to happen before.
const WAIT: Duration = Duration::from_secs(600);

async fn refused(api: &Api, request: GenerateRequest, caller: Caller) -> Error {
    api.generate(request, caller).await.expect_err("refused")
}

#[tokio::test]
async fn each_choice_takes_a_place_and_gives_it_back() {
    let (api, mut admitted, _publish) = api(WAIT);
    assert!(api.generate(request(2), Caller::default()).await.is_ok());
    assert_eq!(api.gate.stats().running, 2);
    // As many as may run, but two would have to wait.
    let error = refused(&api, request(3), Caller::default()).await;
    assert!(matches!(error.class, Class::Overloaded { .. }));
    let error = refused(&api, request(4), Caller::default()).await;
    assert_eq!(error.class, Class::Invalid { field: "n".into() });
    assert_eq!(
        api.gate.stats().running,
        2,
        "what is refused keeps no place"
    );
    assert!(api.generate(request(1), Caller::default()).await.is_ok());
    assert_eq!(api.gate.stats().running, 3);
    while let Ok(admission) = admitted.try_recv() {
        drop(admission);
    }
    assert_eq!(api.gate.stats().running, 0);
}

#[tokio::test]
async fn one_that_waits_runs_when_a_place_comes_free() {
    let (api, mut admitted, _publish) = api(WAIT);
    let _running = api.generate(request(3), Caller::default()).await.unwrap();
    let mut waits = Box::pin(api.generate(request(1), Caller::default()));
    while api.gate.stats().waiting == 0 {
        assert!(futures::poll!(&mut waits).is_pending());
        tokio::task::yield_now().await;
    }
    let error = refused(&api, request(1), Caller::default()).await;
    assert!(matches!(error.class, Class::Overloaded { .. }));
    drop(admitted.recv().await);
    waits.await.unwrap();
    assert_eq!(api.gate.stats().running, 1);
}

#[tokio::test]
async fn waiting_ends_with_the_deadline_or_when_patience_does() {
    let patience = Duration::from_millis(200);
    let (api, _admitted, _publish) = api(patience);
    let _running = api.generate(request(3), Caller::default()).await.unwrap();
    let hurried = Caller {
        deadline: Some(Instant::now() + patience / 4),
        ..Caller::default()
    };
    let error = refused(&api, request(1), hurried).await;
    assert_eq!(error.class, Class::Deadline);
    let start = Instant::now();
    let error = refused(&api, request(1), Caller::default()).await;
    assert!(matches!(error.class, Class::Overloaded { .. }), "{error:?}");
    assert!(start.elapsed() >= patience);
    let stats = api.gate.stats();
    assert_eq!((stats.running, stats.waiting), (3, 0));
    assert_eq!(stats.refused.waited, 1);
}

#[tokio::test]
async fn a_server_that_ends_turns_away_who_waits_and_lets_run_what_runs() {
    let (api, _admitted, _publish) = api(WAIT);
    let _running = api.generate(request(3), Caller::default()).await.unwrap();
    let waits = api.generate(request(1), Caller::default());
    let close = async {
        while api.gate.stats().waiting == 0 {
            tokio::task::yield_now().await;
        }
        api.gate.close();
    };
    let (waited, ()) = tokio::join!(waits, close);
    assert_eq!(waited.unwrap_err().class, Class::Unavailable);
    let error = refused(&api, request(1), Caller::default()).await;
    assert_eq!(error.class, Class::Unavailable);
    let stats = api.gate.stats();
    assert_eq!((stats.running, stats.waiting), (3, 0));
    assert_eq!(stats.refused.draining, 2);
}

#[tokio::test]
async fn one_that_leaves_while_it_waits_leaves_nothing() {
    let (api, _admitted, _publish) = api(WAIT);
    let _running = api.generate(request(3), Caller::default()).await.unwrap();
    let mut waits = Box::pin(api.generate(request(1), Caller::default()));
    while api.gate.stats().waiting == 0 {
        assert!(futures::poll!(&mut waits).is_pending());
        tokio::task::yield_now().await;
    }
    drop(waits);
    assert_eq!(api.gate.stats().waiting, 0);
}

#[tokio::test]
async fn what_can_never_run_is_refused_with_the_field() {
    let (api, _admitted, _publish) = api(WAIT);
    let caller = |limits| {
        let mut caller = Caller::default();
        caller.identity.limits = limits;
        caller
    };
    let few_tokens = Limits {
        tokens: Some(10),
        ..Limits::default()
    };
    let one_choice = Limits {
        running: Some(1),
        ..Limits::default()
    };
    let urgent = |priority| GenerateRequest {
        priority,
        ..request(1)
    };
    for (request, limits, expected) in [
        (request(1), few_tokens, "stop.max_tokens"),
        (request(2), one_choice, "n"),
        (urgent(101), Limits::default(), "priority"),
        (urgent(-101), Limits::default(), "priority"),
    ] {
        let error = refused(&api, request, caller(limits)).await;
        let field = expected.to_owned();
        assert_eq!(error.class, Class::Invalid { field });
    }
    assert!(api.generate(urgent(-100), Caller::default()).await.is_ok());
}
