//! Sessions across the point at which the guidance comes in: offered from the first request or only
//! with it, by the first pass or before it, and with a restart before each of the turns around it. Asserts
//! only in `session`.

use plimsoll_core::turn::Offer;
use plimsoll_scripted::Form;

use super::session::Case;

/// The turns around the first pass.
const AROUND: std::ops::Range<usize> = 3..9;

async fn crosses(form: Form, model: &'static str, offer: Offer) {
    for at in [0.4, 1.0] {
        for streamed in [true, false] {
            let case = Case::guided(form, model, (offer, at)).streamed(streamed);
            case.play().await;
        }
    }
    for turn in AROUND {
        let case = Case::guided(form, model, (offer, 1.0)).streamed(turn % 2 == 0);
        case.restarted_at(turn).play().await;
    }
}

#[tokio::test]
async fn offered_from_the_start_in_chat() {
    crosses(Form::Chat, "gpt-4o", Offer::Start).await;
}

#[tokio::test]
async fn offered_with_the_guidance_in_chat() {
    crosses(Form::Chat, "gpt-4o", Offer::Line).await;
}

#[tokio::test]
async fn offered_from_the_start_in_responses() {
    crosses(Form::Responses, "gpt-5", Offer::Start).await;
}

#[tokio::test]
async fn offered_with_the_guidance_in_responses() {
    crosses(Form::Responses, "gpt-5", Offer::Line).await;
}

#[tokio::test]
async fn offered_from_the_start_in_messages() {
    crosses(Form::Messages, "claude-sonnet-4-5", Offer::Start).await;
}

#[tokio::test]
async fn offered_with_the_guidance_in_messages() {
    crosses(Form::Messages, "claude-sonnet-4-5", Offer::Line).await;
}
