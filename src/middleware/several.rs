//! Asking several rules, or those of which more is said than limit, key and cost.

use std::sync::Arc;

use smallvec::SmallVec;

use super::after::After;
use super::rule::own;
use super::rules::{Asked, Rules, Ruling};
use super::tab::Tab;
use crate::key::Head;

impl Rules {
    pub(super) fn ask_all(self: &Arc<Self>, head: &Head<'_>) -> Asked {
        let (mut asks, mut shadows) = (SmallVec::<[_; 4]>::new(), Vec::new());
        for (position, rule) in self.iter().enumerate() {
            if !rule.concerns(head, || self.limiter.random().next()) {
                continue;
            }
            match rule.ask(head, position) {
                Ok(Some(ask)) if rule.enforces(&ask) => asks.push(ask),
                Ok(Some(ask)) => shadows.push(own(&ask)),
                Ok(None) => {}
                Err(status) if rule.is_enforced_on_all() => {
                    return Asked::Ruled(Ruling::Stop(self.failure(status, head)));
                }
                // Without a key nobody knows whether it is one of those.
                Err(_) => {}
            }
        }
        let asked = match asks.is_empty() {
            true => Asked::Ruled(self.unasked()),
            false => self.put(head, &mut asks),
        };
        let asked = if shadows.is_empty() { asked } else { self.in_shadow(asked, shadows) };
        match asked {
            // By this way the request can be changed before it goes on, which would cost every request
            // a copy if all could.
            Asked::Ruled(ruling @ Ruling::Run(_)) if self.exposes => {
                Asked::Later(Box::pin(std::future::ready(ruling)))
            }
            asked => asked,
        }
    }

    /// What becomes of a request that no limit has anything to say about.
    pub(super) fn unasked(self: &Arc<Self>) -> Ruling {
        Ruling::Run(After::of(self.keeps_tabs.then(|| Arc::new(Tab::empty(self)))))
    }
}
