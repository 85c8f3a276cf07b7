use super::*;
use crate::testing;
use proto::v1::{Prompt, TokenIds, prompt};
use speculation::{LogprobsMode, Rule};
use tokio::sync::watch;

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

#[tokio::test]
async fn each_choice_takes_a_place_and_gives_it_back() {
    let (_publish, served) = watch::channel(Some(testing::shared_model()));
    let (admissions, mut admitted) = mpsc::channel(3);
    let places = Arc::new(Semaphore::new(3));
    let api = Api {
        served,
        admissions,
        places: Arc::clone(&places),
        defaults: Defaults {
            max_draft_tokens: 3,
            min_draft_tokens: 0,
            min_confidence: None,
            rule: Rule::Coupled,
            logprobs: LogprobsMode::Raw,
            max_requests: 3,
        },
    };
    let stream = api.generate(request(2), Caller::default()).await;
    assert!(stream.is_ok());
    assert_eq!(places.available_permits(), 1);
    let refused = api
        .generate(request(2), Caller::default())
        .await
        .expect_err("one is left");
    assert!(matches!(refused.class, Class::Overloaded { .. }));
    let wrong = api
        .generate(request(4), Caller::default())
        .await
        .expect_err("never so many");
    assert!(matches!(wrong.class, Class::Invalid { .. }));
    assert_eq!(
        places.available_permits(),
        1,
        "what is refused keeps no place"
    );
    assert!(api.generate(request(1), Caller::default()).await.is_ok());
    assert_eq!(places.available_permits(), 0);
    while let Ok(admission) = admitted.try_recv() {
        drop(admission);
    }
    assert_eq!(places.available_permits(), 3);
}
