use super::*;
use proptest::prelude::*;
use sys::Buf;

const VOLUME: VolumeId = VolumeId::from_bytes(*b"0123456789abcdef");

#[test]
fn the_known_answers_of_the_nvme_specification_come_out() {
    let ascending: Vec<u8> = (0..4096).map(|at| at as u8).collect();
    let descending: Vec<u8> = (0..4096).map(|at| 255 - at as u8).collect();
    // NVM Command Set Specification, 64b CRC test cases.
    for (bytes, expected) in [
        (&[0; 4096][..], 0x6482_D367_EB22_B64E),
        (&[0xFF; 4096][..], 0xC0DD_BA73_02EC_A3AC),
        (&ascending[..], 0x3E72_9F5F_6750_449C),
        (&descending[..], 0x9A2D_F64B_8E9E_517E),
        (b"123456789", 0xAE8B_1486_0A79_9888),
    ] {
        assert_eq!(crc64(bytes), expected);
        assert_eq!(crc64_scalar(bytes), expected);
    }
}

#[test]
fn a_block_checksum_is_the_crc_of_volume_address_and_block() {
    let block = [7; BLOCK_BYTES];
    let whole = [&VOLUME.to_bytes()[..], &42u64.to_le_bytes(), &block].concat();
    assert_eq!(block_checksum(VOLUME, Lba(42), &block), crc64_scalar(&whole));
}

#[test]
fn the_same_block_elsewhere_has_another_checksum() {
    let block = [0; BLOCK_BYTES];
    let here = block_checksum(VOLUME, Lba(1), &block);
    assert_ne!(here, block_checksum(VOLUME, Lba(2), &block));
    assert_ne!(here, block_checksum(VolumeId::from_bytes([1; 16]), Lba(1), &block));
    assert!(block_matches(VOLUME, Lba(1), &block, here));
    assert!(!block_matches(VOLUME, Lba(2), &block, here));
}

#[test]
fn unwritten_matches_zeroes_only() {
    let mut block = [0; BLOCK_BYTES];
    assert!(block_matches(VOLUME, Lba(0), &block, UNWRITTEN));
    block[BLOCK_BYTES - 1] = 1;
    assert!(!block_matches(VOLUME, Lba(0), &block, UNWRITTEN));
}

#[test]
fn a_crc_of_zero_is_not_taken_for_unwritten() {
    // The last eight bytes of a block can be chosen so that any CRC comes out: append the register itself.
    let mut block = [3; BLOCK_BYTES];
    let head = [&VOLUME.to_bytes()[..], &9u64.to_le_bytes(), &block[..BLOCK_BYTES - 8]].concat();
    // A register of all ones finishes as zero; find the tail that leads there by running the register backwards.
    let mut register = !0u64;
    for _ in 0..64 {
        register =
            if register >> 63 == 1 { (register ^ 0x9A6C_9329_AC4B_C9B5) << 1 | 1 } else { register << 1 };
    }
    let tail = !crc64_scalar(&head) ^ register;
    block[BLOCK_BYTES - 8..].copy_from_slice(&tail.to_le_bytes());
    assert_eq!(crc64_scalar(&[&head[..], &tail.to_le_bytes()].concat()), 0);
    assert_eq!(block_checksum(VOLUME, Lba(9), &block), 1);
}

proptest! {
    #[test]
    fn the_fast_form_equals_the_scalar_form(bytes in prop::collection::vec(any::<u8>(), 0..700), cut in 0usize..700) {
        let cut = cut.min(bytes.len());
        prop_assert_eq!(crc64(&bytes), crc64_scalar(&bytes));
        prop_assert_eq!(crc64_append(crc64(&bytes[..cut]), &bytes[cut..]), crc64_scalar(&bytes));
    }

    #[test]
    fn parts_do_not_matter(cuts in prop::collection::vec(1usize..9000, 0..5), fill in any::<u8>()) {
        let bytes: Vec<u8> = (0..4 * BLOCK_BYTES).map(|at| (at / 7) as u8 ^ fill).collect();
        let mut payload = Payload::new();
        let mut rest = &bytes[..];
        for cut in cuts {
            let (part, later) = rest.split_at(cut.min(rest.len()));
            payload.push(Buf::from(part));
            rest = later;
        }
        payload.push(Buf::from(rest));
        let checksums = payload_checksums(VOLUME, Lba(5), &payload);
        let expected: Vec<u64> = bytes
            .chunks(BLOCK_BYTES)
            .zip(5..)
            .map(|(block, lba)| block_checksum(VOLUME, Lba(lba), block))
            .collect();
        prop_assert_eq!(&checksums, &expected);
        prop_assert!(payload_matches(VOLUME, Lba(5), &payload, &checksums));
        prop_assert!(!payload_matches(VOLUME, Lba(6), &payload, &checksums));
        prop_assert!(!payload_matches(VOLUME, Lba(5), &payload, &checksums[1..]));
    }
}

#[test]
fn a_sealed_block_tells_its_order_at_its_own_place_only() {
    let volume = VolumeId::from_bytes([3; 16]);
    let mut block = vec![0xA5; BLOCK_BYTES];
    seal_block(volume, Lba(9), 77, &mut block);
    assert_eq!(sealed_order(volume, Lba(9), &block), Some(77));
    assert_eq!(sealed_order(volume, Lba(8), &block), None);
    assert_eq!(sealed_order(VolumeId::from_bytes([4; 16]), Lba(9), &block), None);
    for byte in [0, 100, BLOCK_BYTES - 16, BLOCK_BYTES - 1] {
        let mut rotten = block.clone();
        rotten[byte] ^= 1;
        assert_eq!(sealed_order(volume, Lba(9), &rotten), None, "byte {byte}");
    }
}

#[test]
fn a_block_of_zeroes_is_intact_and_of_order_zero() {
    let volume = VolumeId::from_bytes([3; 16]);
    assert_eq!(sealed_order(volume, Lba(1), &[0; BLOCK_BYTES]), Some(0));
    assert_eq!(sealed_order(volume, Lba(1), &[]), None);
}
