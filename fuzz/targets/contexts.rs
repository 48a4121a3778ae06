//! Negotiate contexts, create contexts and their contents.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smb::wire::*;

fuzz_target!(|input: &[u8]| {
    for context in CreateContexts::new(input) {
        let Ok(context) = context else { break };
        assert!(context.name.len() >= 4);
        let _ = Lease::parse(context.data).is_ok();
        let _ = FullEas::new(context.data).count();
        let _ = view_at::<DurableRequestV2>(context.data, 0).is_ok();
        let _ = view_at::<DurableReconnectV2>(context.data, 0).is_ok();
        let _ = view_at::<AppInstanceId>(context.data, 0).is_ok();
    }
    let _ = counted_ids(input).map(Iterator::count);
    let _ = PreauthIntegrity::parse(input).map(|hashes| hashes.offers(HASH_SHA_512));

    // A NEGOTIATE request around the input, whose first bytes place its contexts.
    let Some((&[at, count], rest)) = input.split_first_chunk() else { return };
    let mut message = vec![0; 100];
    message[64..66].copy_from_slice(&36_u16.to_le_bytes());
    message[92] = at;
    message[96] = count;
    message.extend_from_slice(rest);
    if let Ok(request) = NegotiateRequest::parse(&message) {
        for context in request.contexts() {
            let Ok(context) = context else { break };
            let _ = counted_ids(context.data).map(Iterator::count);
            let _ = PreauthIntegrity::parse(context.data).is_ok();
        }
    }
});
