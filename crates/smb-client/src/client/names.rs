//! The server's names of trees and files, and those that their users have.
//!
//! The two differ once a session was lost and another one took its place. A later session may reuse a
//! name that an earlier one gave to something else, so a name counts only together with the session
//! that gave it.

use crate::file::{File, OpenOptions, Tree};
use crate::operation::{Reply, Request};
use smb::wire::{FileId, Guid};
use std::collections::HashMap;

/// A file that outlives its session.
pub(super) struct Durable {
    pub tree: Tree,
    pub name: String,
    pub options: OpenOptions,
    pub create_guid: Guid,
    /// It outlives its server, whoever else opens the file.
    pub is_persistent: bool,
    /// Name in the present session.
    pub known: FileId,
    /// Last name given by the server, even in a session that was lost before it was complete.
    pub told: FileId,
}

/// From the names of a lost session to those of the one in its place.
#[derive(Default)]
pub(super) struct Moves {
    pub trees: HashMap<u32, u32>,
    pub files: HashMap<FileId, FileId>,
    /// The new one.
    pub session: u32,
}

impl Moves {
    /// False: the tree or file of the request is gone.
    pub fn apply(&self, request: &mut Request) -> bool {
        request.session = self.session;
        request.rename(|tree| self.trees.get(&tree).copied(), |file| self.files.get(&file).copied())
    }
}

/// A connected share.
pub(super) struct Share {
    pub name: String,
    /// Name of the tree in the present session.
    pub known: u32,
}

/// The server's names, by users' names and the session that gave those: a later session may reuse them
/// for others.
#[derive(Default)]
pub(super) struct Names {
    /// Sessions before this one.
    pub session: u32,
    pub trees: HashMap<(u32, u32), Share>,
    pub durable: HashMap<(u32, FileId), Durable>,
}

impl Names {
    /// A user's request in the server's words. False: the session that knew tree or file is lost, and they with it.
    pub fn translate(&self, request: &mut Request) -> bool {
        let named_in = request.session;
        if named_in == self.session {
            return true;
        }
        request.session = self.session;
        request.rename(
            |tree| self.trees.get(&(named_in, tree)).map(|share| share.known),
            |file| self.durable.get(&(named_in, file)).map(|durable| durable.known),
        )
    }

    pub fn connected(&mut self, tree: Tree, share: &str) {
        self.trees.insert((tree.session, tree.id), Share { name: share.to_owned(), known: tree.id });
    }

    pub fn disconnected(&mut self, tree: Tree) {
        self.trees.remove(&(tree.session, tree.id));
    }

    /// `tree` as the session calls it that gave `reply`, so that both names are of one.
    pub fn tree_of(&self, tree: Tree, reply: &Reply) -> Tree {
        if reply.session() != Some(self.session) || tree.session == self.session {
            return tree;
        }
        match self.trees.get(&(tree.session, tree.id)) {
            Some(share) => Tree { id: share.known, session: self.session, ..tree },
            None => tree,
        }
    }

    pub fn moved(&mut self, moves: &Moves) {
        self.session = moves.session;
        for share in self.trees.values_mut() {
            share.known = moves.trees.get(&share.known).copied().unwrap_or(share.known);
        }
        for durable in self.durable.values_mut() {
            durable.known = durable.told;
        }
    }

    pub fn forget(&mut self, file: &File) {
        self.durable.remove(&(file.tree.session, file.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smb::wire::{Command, view_at};
    use types::NtStatus;

    fn tree(id: u32, session: u32) -> Tree {
        Tree {
            id,
            must_encrypt: false,
            is_pipe: false,
            maximal_access: 0,
            is_continuously_available: false,
            session,
        }
    }

    fn file(id: u64) -> FileId {
        FileId { persistent: id.into(), volatile: id.into() }
    }

    fn durable(tree: Tree, known: FileId) -> Durable {
        let (name, options, create_guid) = (String::new(), OpenOptions::read(), [0; 16]);
        Durable { tree, name, options, create_guid, is_persistent: false, known, told: known }
    }

    /// Tree and file that a READ of `id` in `tree` reaches.
    fn reached(names: &Names, tree: Tree, id: FileId) -> Option<(u32, FileId)> {
        let mut request = Request::read(tree.id, id, 0, 1).within(tree);
        if !names.translate(&mut request) {
            return None;
        }
        let in_body = *view_at::<FileId>(&request.body, 16).unwrap();
        request.send_inline();
        assert_eq!(*view_at::<FileId>(&request.body, 16).unwrap(), in_body);
        Some((request.tree_id, in_body))
    }

    #[test]
    fn a_name_that_two_sessions_gave_leads_to_two_files() {
        let mut names = Names::default();
        let (one, two) = (tree(1, 0), tree(2, 0));
        names.connected(one, "a");
        names.connected(two, "b");
        names.durable.insert((0, file(7)), durable(one, file(7)));
        assert_eq!(reached(&names, one, file(7)), Some((1, file(7))));
        assert_eq!(reached(&names, one, file(8)), Some((1, file(8))));
        // The server now calls each tree as it called the other, and a new file 7 is another than the old one.
        for durable in names.durable.values_mut() {
            durable.told = file(8);
        }
        let moves = Moves {
            trees: HashMap::from([(1, 2), (2, 1)]),
            files: HashMap::from([(file(7), file(8))]),
            session: 1,
        };
        names.moved(&moves);
        assert_eq!(reached(&names, one, file(7)), Some((2, file(8))));
        assert_eq!(reached(&names, one, file(8)), None);
        let mut reply = Reply::local(Command::Create, NtStatus::SUCCESS);
        reply.set_session(1);
        let now = names.tree_of(one, &reply);
        assert_eq!((now.id, now.session), (2, 1));
        assert_eq!(reached(&names, now, file(7)), Some((2, file(7))));
        names.disconnected(one);
        assert_eq!(reached(&names, one, file(7)), None);
        assert_eq!(reached(&names, two, FileId::RELATED), Some((1, FileId::RELATED)));
    }
}
