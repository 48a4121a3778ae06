//! A request to several servers of a cluster.
//!
//! Promises: the requests run concurrently, each with its own timeout; a server that does not answer
//! delays no other one's answer.

use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinSet;

/// Sends the requests. Returns the answers by the servers' names; `None`: no answer in time, or an
/// unusable one.
pub(crate) async fn ask_each<T, F>(
    names: impl IntoIterator<Item = String>,
    timeout: Duration,
    ask: impl Fn(String) -> F,
) -> BTreeMap<String, Option<T>>
where
    T: Send + 'static,
    F: Future<Output = Option<T>> + Send + 'static,
{
    let mut answers = BTreeMap::new();
    let mut questions = JoinSet::new();
    for name in names {
        let question = ask(name.clone());
        answers.insert(name.clone(), None);
        questions.spawn(async move { (name, tokio::time::timeout(timeout, question).await.ok().flatten()) });
    }
    while let Some(ended) = questions.join_next().await {
        // A question that panicked has no answer.
        if let Ok((name, answer)) = ended {
            answers.insert(name, answer);
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::sync::Barrier;

    #[tokio::test]
    async fn servers_are_asked_at_once() {
        let together = Arc::new(Barrier::new(2));
        let names = ["one", "other"].map(str::to_owned);
        let answers = ask_each(names, Duration::from_secs(60), |_| {
            let together = together.clone();
            async move { Some(together.wait().await.is_leader()) }
        });
        // If the requests were sequential, the first would wait for the other until its timeout.
        assert!(answers.await.values().all(Option::is_some));
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_is_named_beside_the_others() {
        let names = ["well", "late", "no", "worse"].map(str::to_owned);
        let answers = ask_each(names, Duration::from_millis(50), |name| async move {
            match name.as_str() {
                "late" => std::future::pending().await,
                "no" => None,
                "worse" => panic!("a question that goes wrong"),
                _ => Some(name.len()),
            }
        });
        let answers = answers.await;
        let named: Vec<(&str, Option<usize>)> =
            answers.iter().map(|(name, answer)| (name.as_str(), *answer)).collect();
        assert_eq!(named, [("late", None), ("no", None), ("well", Some(4)), ("worse", None)]);
    }
}
