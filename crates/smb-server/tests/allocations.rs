//! READ and WRITE of a warm server visit no allocator, from the message received to the answer to be sent.
//!
//! The allocator of this test program counts; nothing else runs in it.

#[allow(dead_code)]
#[path = "server/fixture.rs"]
mod fixture;

use fixture::{Client, World};
use smb::wire::{Command, Header};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use sys::{Buf, BufMut};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

fn count() {
    // Gone while the thread ends.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: everything is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(place, layout, new_size) }
    }
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const WARM_UP: usize = 100;
const COUNTED: usize = 1000;

/// Serves prepared messages; the visits to the allocator while it served those after the first [`WARM_UP`].
fn visits(world: &mut World, client: &Client, messages: &[Buf]) -> u64 {
    let (mut before, mut connections) = (0, Vec::with_capacity(4));
    for (position, message) in messages.iter().enumerate() {
        if position == WARM_UP {
            before = COUNT.get();
        }
        world.server.handle_message(client.connection, message.clone(), world.now);
        while world.server.poll(world.now) {}
        connections.clear();
        world.server.take_transmitters(&mut connections);
        let answer = world.server.poll_transmit(client.connection).expect("an answer");
        let header = Header::parse(&answer.parts()[0]).expect("a header");
        assert!(!header.status().is_error(), "{}", header.status());
    }
    COUNT.get() - before
}

fn prepared(client: &mut Client, command: Command, body: impl Fn(&mut Vec<u8>)) -> Vec<Buf> {
    (0..WARM_UP + COUNTED)
        .map(|_| {
            let message = client.build(command, &body);
            let mut buffer = BufMut::with_aligned(message.len(), 112);
            buffer.copy_from_slice(&message);
            buffer.freeze()
        })
        .collect()
}

#[test]
fn a_read_and_a_write_are_parsed_carried_out_and_answered_without_allocation() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    world.layer.0.borrow_mut().block = Some(BufMut::zeroed(4096).freeze());
    let reads = prepared(&mut client, Command::Read, |out| Client::read_body(file, 4096)(out));
    let count = visits(&mut world, &client, &reads);
    assert_eq!(count, 0, "{COUNTED} READs visited the allocator {count} times");
    let data = [7; 4096];
    let writes = prepared(&mut client, Command::Write, |out| Client::write_body(file, &data)(out));
    let count = visits(&mut world, &client, &writes);
    assert_eq!(count, 0, "{COUNTED} WRITEs visited the allocator {count} times");
}

#[test]
fn the_allocator_counts() {
    let before = COUNT.get();
    drop(std::hint::black_box(Vec::<u8>::with_capacity(100)));
    assert_eq!(COUNT.get() - before, 1);
}
