//! Rules that decide and report, and refuse nothing.

use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::OnFailure;
use super::rule::{ByRule, OwnChoice};
use super::rules::{Asked, Later, Rules, Ruling};
use super::tab::Tab;
use crate::algebra::Verdict;
use crate::limiter::{Ask, Wish, ask, complete};

impl Rules {
    /// Asks the shadow rules about a request that goes on: each by itself, as if it were the only one,
    /// and after those that are enforced, so that they take or refuse as they would without it.
    pub(super) fn in_shadow(self: &Arc<Self>, asked: Asked, shadows: Vec<Ask<OwnChoice>>) -> Asked {
        let rules = Arc::clone(self);
        match asked {
            asked @ Asked::Ruled(Ruling::Stop(_) | Ruling::Untold(_)) => asked,
            Asked::Ruled(ruling) => {
                let mut later: Later = Box::pin(rules.ask_shadows(ruling, shadows));
                // Whoever has to wait for an answer polls it again.
                match later.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(ruling) => Asked::Ruled(ruling),
                    Poll::Pending => Asked::Later(later),
                }
            }
            Asked::Later(ruling) => Asked::Later(Box::pin(async move {
                match ruling.await {
                    stop @ (Ruling::Stop(_) | Ruling::Untold(_)) => stop,
                    ruling => rules.ask_shadows(ruling, shadows).await,
                }
            })),
        }
    }

    async fn ask_shadows(self: Arc<Self>, ruling: Ruling, shadows: Vec<Ask<OwnChoice>>) -> Ruling {
        for mut shadow in shadows {
            self.ask_shadow(ruling.tab(), &mut shadow).await;
        }
        ruling
    }

    async fn ask_shadow(&self, tab: Option<&Tab>, shadow: &mut Ask<OwnChoice>) {
        let Some(rule) = self.rule_at(shadow.limit.rule()) else { return };
        let answer = match ask(&self.limiter, slice::from_mut(shadow), Wish::Take, Wish::Take) {
            Ok(answer) => answer,
            Err(error) => return rule.log.would_be_too_large(&error),
        };
        let answer = answer.wait().await;
        match answer.and_then(|applied| complete(slice::from_ref(shadow), applied)) {
            Ok(applied) => {
                rule.log.sees(shadow.limit());
                if applied.verdict() == Verdict::Refused {
                    rule.log.would_refuse(shadow.limit(), applied.wait());
                }
                if let Some(tab) = tab {
                    tab.add_shadow(slice::from_ref(shadow), &applied);
                }
            }
            // The request goes on whatever the layer does otherwise.
            Err(error) => rule.log.blind(shadow.limit(), &error, OnFailure::Open),
        }
    }
}
