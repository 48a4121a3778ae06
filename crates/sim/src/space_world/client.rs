//! Clients: each performs one operation after the other, on any coordinator that it finds, and
//! remembers the answers.

use super::blocks::{CHUNK_BLOCKS, CHUNKS, is_append, payload, value_of};
use super::oracle::{Register, ZERO};
use crate::random::Random;
use space::api::SpaceRequest;
use std::collections::BTreeMap;
use store::api::WriteClass;
use sys::Payload;
use types::{BLOCK_BYTES, Lba};

/// First blocks, within a chunk, of the clients' operations: both regions, and their border.
const PLACES: [u64; 4] = [0, 100, 253, 400];

/// An operation of a client, in progress.
#[derive(Debug, Clone)]
pub(crate) enum Doing {
    Read {
        lba: u64,
    },
    Write {
        lba: u64,
        blocks: u64,
        value: u64,
    },
    /// Blocks of a chunk that is given back.
    Discard {
        lbas: Vec<u64>,
        value: u64,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Client {
    pub doing: Option<(Doing, u64)>,
    /// Step at which the operation began.
    pub began: u64,
    /// Virtual time at which it began.
    pub since: u64,
    /// Virtual time at which the client gives the operation up.
    pub patience_until: u64,
    pub token: u64,
}

impl Client {
    /// Whether the client waits for the answer to this operation.
    pub fn awaits(&self, token: u64) -> bool {
        self.doing.as_ref().is_some_and(|(_, doing)| *doing == token)
    }
}

/// Knowledge that all clients share.
#[derive(Default)]
pub(crate) struct History {
    pub registers: BTreeMap<u64, Register>,
    pub next_value: u64,
    pub garbage: Vec<String>,
    pub discards: bool,
}

impl History {
    /// Chooses a few blocks or a whole chunk to give back, if a later read can show whether that
    /// was done.
    fn choose_discard(&mut self, random: &mut Random, step: u64) -> Option<(Doing, SpaceRequest)> {
        let chunk = random.below(CHUNKS);
        let place = PLACES[random.below(PLACES.len() as u64) as usize];
        let (lba, blocks) = match random.chance(300) {
            true => (chunk * CHUNK_BLOCKS, CHUNK_BLOCKS),
            false => (chunk * CHUNK_BLOCKS + place, random.between(1, 7)),
        };
        let lbas: Vec<u64> = self.registers.range(lba..lba + blocks).map(|(at, _)| *at).collect();
        let clear =
            lbas.iter().all(|at| self.registers.get(at).is_some_and(|known| known.may_be_zeroed(step)));
        if lbas.is_empty() || !clear {
            return None;
        }
        self.next_value += 1;
        let value = self.next_value;
        for at in &lbas {
            self.registers.entry(*at).or_default().zeroing_began(value, step);
        }
        Some((Doing::Discard { lbas, value }, SpaceRequest::Discard { lba: Lba(lba), blocks }))
    }

    /// Chooses an operation and notes that it begins at `step`.
    pub fn choose(&mut self, random: &mut Random, step: u64) -> (Doing, SpaceRequest) {
        if self.discards
            && random.chance(80)
            && let Some(discard) = self.choose_discard(random, step)
        {
            return discard;
        }
        let chunk = random.below(CHUNKS);
        let place = PLACES[random.below(PLACES.len() as u64) as usize];
        let lba = chunk * CHUNK_BLOCKS + place + random.below(4);
        let blocks = random.between(1, 4);
        if random.chance(450) {
            return (
                Doing::Read { lba },
                SpaceRequest::Read { lba: Lba(lba), blocks: blocks as u32, copy: None },
            );
        }
        let untouched =
            (lba..lba + blocks).all(|at| self.registers.get(&at).is_none_or(Register::is_untouched));
        self.next_value += 1;
        let value = self.next_value;
        for at in lba..lba + blocks {
            self.registers.entry(at).or_default().write_began(value, step);
        }
        let class = match () {
            () if is_append(lba) => WriteClass::Append,
            () if untouched && random.chance(500) => WriteClass::Fresh,
            () => WriteClass::Overwrite,
        };
        let request = SpaceRequest::Write { lba: Lba(lba), class, data: payload(value, lba, blocks) };
        (Doing::Write { lba, blocks, value }, request)
    }

    pub fn wrote(&mut self, lba: u64, blocks: u64, value: u64, step: u64) {
        for at in lba..lba + blocks {
            self.registers.entry(at).or_default().write_ended(value, step);
        }
    }

    pub fn read(&mut self, lba: u64, data: &Payload, began: u64, step: u64) {
        let data = data.contiguous();
        for (at, block) in data.chunks(BLOCK_BYTES).enumerate() {
            let lba = lba + at as u64;
            match value_of(block, lba) {
                Some(ZERO) => self.registers.entry(lba).or_default().read_zeroes(began, step),
                Some(value) => self.registers.entry(lba).or_default().read(value, began, step),
                None => {
                    self.garbage.push(format!("block {lba} was read as something that was never written"))
                }
            }
        }
    }
}
