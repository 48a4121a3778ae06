//! The condition that the server which writes is still in the cluster.
//!
//! etcd checks a certificate only when a connection begins, so a server that was removed may still have a working connection. Promises: each commit
//! compares, in the same transaction of etcd, that the writer's own record is the one which was last found to be a member's. A record that only
//! changed meanwhile costs a second try; one that says that the server was removed, or that is gone, ends the commit as
//! [`StateError::NotApplied`]. A server that never had a record, as a founder at its first start, writes as long as none is there.

use super::protocol as wire;
use super::requests::{Failure, Requests};
use super::translation::Translation;
use records::{NodeRecord, Record, StateError};
use std::sync::atomic::Ordering;
use types::NodeId;
use wire::request_op::Request::RequestRange;
use wire::response_op::Response::ResponseRange;

/// Tries of a commit if the writer's record changes each time meanwhile.
const TRIES: u32 = 8;
/// The reason that the author of a change is given.
const REMOVED: &str = "this server was removed from the cluster, and changes nothing in it any more. To bring it back, stop it, move its data \
     directory away, and let it join anew with an empty one; to leave it out for good, disable its service";

impl Requests {
    /// Sends a transaction with the writer's condition. It is sent again only after etcd has refused it for certain.
    pub(super) async fn as_writer(
        &self,
        translation: &Translation,
        request: wire::TxnRequest,
    ) -> Result<Result<wire::TxnResponse, Failure>, StateError> {
        let writer = self.shared.options().writer;
        let Some(key) = writer.map(key_of) else {
            return Ok(self.once(|mut client| async move { client.txn(request).await }).await);
        };
        for _ in 0..TRIES {
            let revision = self.shared.writer_revision.load(Ordering::Acquire);
            let mut guarded = request.clone();
            guarded.compare.extend(translation.compare(&key, revision));
            guarded.failure = vec![wire::RequestOp { request: Some(RequestRange(translation.get(&key))) }];
            let answered = match self.once(|mut client| async move { client.txn(guarded).await }).await {
                Ok(answered) if !answered.succeeded => answered,
                decided => return Ok(decided),
            };
            let now = self.writer_now(translation, &key, &answered)?;
            if now == revision {
                // Another condition did not hold.
                return Ok(Ok(answered));
            }
            if now == 0 {
                return Err(StateError::NotApplied(REMOVED.into()));
            }
            self.shared.writer_revision.store(now, Ordering::Release);
        }
        Err(StateError::NotApplied("this server's own record changes all the time".into()))
    }

    /// Returns the revision of the writer's record by the refusal of its transaction; 0: there is none.
    fn writer_now(
        &self,
        translation: &Translation,
        key: &str,
        refusal: &wire::TxnResponse,
    ) -> Result<u64, StateError> {
        let found = refusal.responses.iter().find_map(|part| match part.response.as_ref()? {
            ResponseRange(range) => range.kvs.first(),
            _ => None,
        });
        let Some(found) = found else { return Ok(0) };
        match NodeRecord::decode(key, &found.value)?.is_member() {
            true => Ok(translation.revision(found.mod_revision)),
            false => Err(StateError::NotApplied(REMOVED.into())),
        }
    }
}

fn key_of(writer: NodeId) -> String {
    format!("{}{}", NodeRecord::PREFIX, NodeRecord::id_of(writer))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{One, until};
    use super::super::{EtcdOptions, EtcdState};
    use super::*;
    use records::{Answer, BlockingState, NodeState, Request, State, Transaction, Typed};
    use std::net::SocketAddr;
    use uuid::Uuid;

    fn record(id: NodeId) -> NodeRecord {
        let at = SocketAddr::from(([127, 0, 0, 1], 1));
        NodeRecord {
            id,
            name: "node-2".into(),
            server_guid: Uuid::from_bytes([2; 16]),
            addresses: vec![at.ip()],
            smb: at,
            rdma: None,
            api: at,
            cluster: at,
            heartbeat: at,
            etcd: None,
            public_key: String::new(),
            certificate_sha256: String::new(),
            certificate_serial: String::new(),
            certified_unix_s: 0,
            earlier_certificates: Vec::new(),
            rack: String::new(),
            chassis: String::new(),
            version: String::new(),
            joined_unix_s: 0,
            state: NodeState::Up,
            is_witness: false,
        }
    }

    #[test]
    fn a_server_that_was_removed_changes_nothing_on_the_connection_that_it_has() {
        let Some(one) = One::start() else { return };
        let others = State::from(one.state());
        let options = EtcdOptions { writer: Some(NodeId(2)), ..one.client_options() };
        let server = State::from(EtcdState::connect(options).unwrap());
        until("it answers", || server.call(Request::Get { key: "a".into() }).is_ok());
        let put = |key: &str| server.commit(Transaction::default().when(key, 0).put(key, vec![1]));
        put("before it has a record").unwrap();
        let mut own = record(NodeId(2));
        let mut revision = others.write(&own, 0).unwrap();
        put("as a member").unwrap();
        assert_eq!(put("as a member"), Err(StateError::Conflict), "its own conditions count as before");
        for state in [NodeState::Draining, NodeState::Drained, NodeState::Up] {
            own.state = state;
            revision = others.write(&own, revision).unwrap();
            put(&format!("{state:?}")).unwrap();
        }
        // It may change its own record.
        own.rack = "r1".into();
        revision = server.write(&own, revision).unwrap();
        assert_eq!(server.write(&own, revision - 1), Err(StateError::Conflict));
        put("after that").unwrap();
        own.state = NodeState::Removed;
        others.write(&own, revision).unwrap();
        let is_refused = || {
            for change in
                [Transaction::default().put("b", vec![1]), Transaction::default().delete("as a member")]
            {
                let refused = server.commit(change).unwrap_err();
                let is_told = matches!(&refused, StateError::NotApplied(why) if why.contains("was removed"));
                assert!(is_told, "{refused}");
            }
        };
        is_refused();
        others.commit(Transaction::default().delete(own.key())).unwrap();
        is_refused();
        let read = |key: &str| others.call(Request::Get { key: key.into() });
        assert_eq!(read("b"), Ok(Answer::Value(None)));
        assert!(matches!(read("as a member"), Ok(Answer::Value(Some(_)))));
    }
}
