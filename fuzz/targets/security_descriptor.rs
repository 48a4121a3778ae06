//! Security descriptors: a parsed one is built again, and parses to the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use volume::security::SecurityDescriptor;

fuzz_target!(|input: &[u8]| {
    let Ok(descriptor) = SecurityDescriptor::parse(input) else { return };
    let Ok(built) = descriptor.build() else { return };
    let again = SecurityDescriptor::parse(&built).expect("what was built parses");
    assert_eq!(again.owner, descriptor.owner);
    assert_eq!(again.group, descriptor.group);
    // An ACE of an odd length is padded when it is built, and stays as it is from then on.
    assert_eq!(again.build(), Ok(built));
});
