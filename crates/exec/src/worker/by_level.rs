//! Capacities that different workers serve: a model of this process for the small one, say, and an endpoint for the large.

use super::{AskError, Reply, Request, Worker};
use async_trait::async_trait;
use lemon_trace::FailureKind;
use std::borrow::Cow;
use std::sync::Arc;

/// A worker for each capacity, with the position of that capacity among its own.
pub struct ByLevel {
    levels: Vec<(Arc<dyn Worker>, usize)>,
}

impl ByLevel {
    /// Workers by capacity, weakest first.
    pub fn new(levels: Vec<(Arc<dyn Worker>, usize)>) -> Self {
        ByLevel { levels }
    }

    /// The worker of the capacity of a request, and the request as that worker sees it.
    fn at_its_level<'r>(&self, request: &'r Request) -> Option<(&Arc<dyn Worker>, Cow<'r, Request>)> {
        let (worker, level) = self.levels.get(request.level)?;
        let request = match request.level == *level {
            true => Cow::Borrowed(request),
            false => Cow::Owned(Request { level: *level, ..request.clone() }),
        };
        Some((worker, request))
    }
}

#[async_trait]
impl Worker for ByLevel {
    async fn ask(&self, request: &Request) -> Result<Reply, AskError> {
        let Some((worker, request)) = self.at_its_level(request) else {
            let message = format!("no worker serves the capacity `{}`", request.capacity);
            return Err(AskError::free(FailureKind::Refused, message));
        };
        worker.ask(&request).await
    }

    fn cache_key(&self, request: &Request) -> Option<Vec<u8>> {
        let (worker, request) = self.at_its_level(request)?;
        worker.cache_key(&request)
    }

    fn has_cache_keys(&self) -> bool {
        self.levels.iter().any(|(worker, _)| worker.has_cache_keys())
    }

    fn wants_team(&self) -> bool {
        self.levels.iter().any(|(worker, _)| worker.wants_team())
    }

    fn calls_tools(&self, level: usize) -> bool {
        self.levels.get(level).is_some_and(|(worker, level)| worker.calls_tools(*level))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::{ChatMessage, Usage};

    /// Says its name and the capacity that it was asked for.
    struct Named(&'static str);

    #[async_trait]
    impl Worker for Named {
        async fn ask(&self, request: &Request) -> Result<Reply, AskError> {
            let text = format!("{} {}", self.0, request.level);
            Ok(Reply {
                text,
                usage: Usage::default(),
                model: None,
                simulated_s: None,
                confidence: None,
                truncated: false,
                tool_calls: Vec::new(),
            })
        }
    }

    #[tokio::test]
    async fn each_level_reaches_its_worker() {
        let (near, far): (Arc<dyn Worker>, Arc<dyn Worker>) = (Arc::new(Named("near")), Arc::new(Named("far")));
        let workers = ByLevel::new(vec![(near.clone(), 0), (far, 0), (near, 1)]);
        let request = |level| Request {
            agent: "a".into(),
            level,
            capacity: "huge".into(),
            messages: vec![ChatMessage::user("?")],
            max_tokens: 1,
            temperature: None,
            seed: 0,
            schema: None,
            tools: None,
            agent_prompt: None,
            progress: None,
        };
        for (level, expected) in ["near 0", "far 0", "near 1"].into_iter().enumerate() {
            assert_eq!(workers.ask(&request(level)).await.unwrap().text, expected);
        }
        let error = workers.ask(&request(3)).await.unwrap_err();
        assert_eq!(error.failure.message, "no worker serves the capacity `huge`");
    }
}
