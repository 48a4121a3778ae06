use super::*;
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use proptest::prelude::*;

/// The one-shot interface of the same library, over bytes in one piece.
fn whole(key: &[u8], nonce: [u8; 12], additional: &[u8], plain: &[u8]) -> (Vec<u8>, [u8; 16]) {
    let algorithm = if key.len() == 16 { &AES_128_GCM } else { &AES_256_GCM };
    let key = LessSafeKey::new(UnboundKey::new(algorithm, key).unwrap());
    let mut bytes = plain.to_vec();
    let tag = key
        .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(additional), &mut bytes)
        .unwrap();
    (bytes, tag.as_ref().try_into().unwrap())
}

/// `bytes` cut at the places, each taken modulo what is left.
fn cut<'a>(mut bytes: &'a [u8], places: &[usize]) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    for place in places {
        let (part, rest) = bytes.split_at(place % (bytes.len() + 1));
        parts.push(part);
        bytes = rest;
    }
    parts.push(bytes);
    parts
}

/// NIST's test case 4 of the GCM specification, for a key of 128 bits.
#[test]
fn the_published_vector_comes_out() {
    let hex = |text: &str| -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    };
    let plain = hex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
    );
    let mut out = vec![0; plain.len()];
    let tag = GcmSealer::new(&hex("feffe9928665731c6d6a8f9467308308"))
        .unwrap()
        .seal(
            hex("cafebabefacedbaddecaf888").try_into().unwrap(),
            &hex("feedfacedeadbeeffeedfacedeadbeefabaddad2"),
            &cut(&plain, &[7, 33]),
            &mut out,
        )
        .unwrap();
    assert_eq!(
        out,
        hex(
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091"
        )
    );
    assert_eq!(tag.to_vec(), hex("5bc94fbc3221a5db94fae95ae7121a47"));
}

#[test]
fn keys_of_other_lengths_are_refused() {
    for len in [0, 15, 17, 24, 31, 33] {
        assert!(GcmSealer::new(&vec![1; len]).is_none(), "{len}");
    }
}

#[test]
fn an_output_of_another_length_is_refused_and_the_key_stays_good() {
    let mut sealer = GcmSealer::new(&[3; 16]).unwrap();
    for len in [0, 99, 101] {
        assert!(sealer.seal([1; 12], b"head", &[&[7; 100]], &mut vec![0; len]).is_none(), "{len}");
    }
    let mut out = [0; 100];
    let tag = sealer.seal([2; 12], b"head", &[&[7; 100]], &mut out).unwrap();
    assert_eq!((out.to_vec(), tag), whole(&[3; 16], [2; 12], b"head", &[7; 100]));
}

proptest! {
    #[test]
    fn pieces_seal_as_the_whole(
        key in prop_oneof![prop::collection::vec(any::<u8>(), 16), prop::collection::vec(any::<u8>(), 32)],
        nonce: [u8; 12],
        additional in prop::collection::vec(any::<u8>(), 0..100),
        plain in prop::collection::vec(any::<u8>(), 0..5000),
        places in prop::collection::vec(any::<usize>(), 0..6),
    ) {
        let (sealed, tag) = whole(&key, nonce, &additional, &plain);
        let mut sealer = GcmSealer::new(&key).unwrap();
        // Twice: nothing of the first message is left in the second.
        for _ in 0..2 {
            let mut out = vec![0; plain.len()];
            prop_assert_eq!(sealer.seal(nonce, &additional, &cut(&plain, &places), &mut out), Some(tag));
            prop_assert_eq!(&out, &sealed);
        }
    }

    #[test]
    fn pieces_authenticate_as_the_whole(
        key: [u8; 16],
        nonce: [u8; 12],
        message in prop::collection::vec(any::<u8>(), 0..5000),
        places in prop::collection::vec(any::<usize>(), 0..6),
    ) {
        let mut sealer = GcmSealer::new(&key).unwrap();
        for _ in 0..2 {
            let tag = sealer.authenticate_pieces(nonce, |each| cut(&message, &places).into_iter().for_each(each));
            prop_assert_eq!(tag, Some(whole(&key, nonce, &message, &[]).1));
        }
    }
}
