//! Vectors: the Open Specifications blog's signed SESSION_SETUP responses, RFC 4493, and a GHASH written bit by bit.

use super::{hex, hex16};
use crate::crypto::*;
use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aws_lc_rs::hmac;

const ALGORITHMS: [SigningAlgorithm; 3] =
    [SigningAlgorithm::HmacSha256, SigningAlgorithm::AesCmac, SigningAlgorithm::AesGmac];

fn message(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7) as u8).collect()
}

#[test]
fn aes_cmac_signatures_are_those_of_the_published_sessions() {
    for (key, response) in [
        (
            "73FE7A9A77BEF0BDE49C650D8CCB5F76",
            "FE534D4240000100000000000100800009000000000000000300000000000000FFFE000000000000
             1900000000100000EBE146DA120BA25FC3376A49DFE31BC10900000048001D00A11B3019A0030A01
             00A3120410010000003B453CDC3524164200000000",
        ),
        (
            "8765949DFEAEE105CE9118B45BE988F0",
            "FE534D4240000100000000000100800009000000000000000200000000000000FFFE000000000000
             25000000001000006B85A4519A0F3EEA35BA946DD3AFE6B80900000048001D00A11B3019A0030A01
             00A3120410010000003932A87523AB660100000000",
        ),
    ] {
        let key = SigningKey::new(SigningAlgorithm::AesCmac, &hex16(key));
        key.verify(&[&hex(response)], 3, true, false).unwrap();
    }
}

#[test]
fn aes_cmac_of_64_bytes_with_a_signature_of_zeros_agrees_with_the_primitive_of_rfc_4493() {
    // RFC 4493, example 4, has no run of zeros where the signature lies; so its key is checked on a message of our own.
    let key = hex16("2b7e151628aed2a6abf7158809cf4f3c");
    let mut bytes = message(64);
    bytes[48..].fill(0);
    let primitive = aws_lc_rs::cmac::Key::new(aws_lc_rs::cmac::AES_128, &key).unwrap();
    let expected = aws_lc_rs::cmac::sign(&primitive, &bytes).unwrap();
    let signed = SigningKey::new(SigningAlgorithm::AesCmac, &key).sign(&[&message(64)], 0, false, false);
    assert_eq!(signed[..], *expected.as_ref());
}

#[test]
fn hmac_signatures_are_the_first_16_bytes_of_hmac_sha256() {
    let mut bytes = message(200);
    bytes[48..64].fill(0);
    let expected = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &[4; 16]), &bytes);
    let signed =
        SigningKey::new(SigningAlgorithm::HmacSha256, &[4; 16]).sign(&[&message(200)], 1, false, false);
    assert_eq!(signed[..], expected.as_ref()[..16]);
}

/// Multiplication in GF(2^128) as NIST SP 800-38D 6.3 defines it.
fn multiply(x: u128, y: u128) -> u128 {
    let (mut z, mut v) = (0, y);
    for bit in (0..128).rev() {
        if x >> bit & 1 == 1 {
            z ^= v;
        }
        v = if v & 1 == 1 { v >> 1 ^ 0xE1 << 120 } else { v >> 1 };
    }
    z
}

/// GMAC by its definition (NIST SP 800-38D 7.1 with an empty plaintext).
fn gmac_by_definition(key: &[u8; 16], nonce: &[u8; 12], bytes: &[u8]) -> [u8; 16] {
    let cipher = Aes128::new(key.into());
    let encrypt = |block: [u8; 16]| {
        let mut block = block.into();
        cipher.encrypt_block(&mut block);
        u128::from_be_bytes(block.into())
    };
    let subkey = encrypt([0; 16]);
    let mut hash = 0;
    for chunk in bytes.chunks(16) {
        let mut block = [0; 16];
        block[..chunk.len()].copy_from_slice(chunk);
        hash = multiply(hash ^ u128::from_be_bytes(block), subkey);
    }
    hash = multiply(hash ^ (bytes.len() as u128 * 8) << 64, subkey);
    let mut counter = [0; 16];
    counter[..12].copy_from_slice(nonce);
    counter[15] = 1;
    (hash ^ encrypt(counter)).to_be_bytes()
}

#[test]
fn aes_gmac_signatures_have_the_nonce_of_message_identifier_role_and_cancel() {
    let key = hex16("FEFFE9928665731C6D6A8F9467308308");
    for (is_server, is_cancel, role) in
        [(false, false, 0_u8), (true, false, 1), (false, true, 2), (true, true, 3)]
    {
        let message_id = 0x0102_0304_0506_0708_u64;
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
        nonce[8] = role;
        let mut bytes = message(133);
        bytes[48..64].fill(0);
        let signed = SigningKey::new(SigningAlgorithm::AesGmac, &key).sign(
            &[&message(133)],
            message_id,
            is_server,
            is_cancel,
        );
        assert_eq!(signed, gmac_by_definition(&key, &nonce, &bytes));
    }
}

#[test]
fn a_message_signs_the_same_however_it_is_cut_into_parts() {
    let bytes = message(150);
    for algorithm in ALGORITHMS {
        let key = SigningKey::new(algorithm, &[1; 16]);
        let whole = key.sign(&[&bytes], 9, true, false);
        for at in 0..=bytes.len() {
            let (front, back) = bytes.split_at(at);
            assert_eq!(key.sign(&[front, &[], back], 9, true, false), whole, "{algorithm:?} cut at {at}");
        }
        let mut in_place = bytes.clone();
        key.sign_in_place(&mut in_place, 9, true, false).unwrap();
        assert_eq!(in_place[48..64], whole);
        for at in 0..=bytes.len() {
            let (front, back) = in_place.split_at(at);
            key.verify(&[front, back], 9, true, false).unwrap();
        }
    }
}

#[test]
fn every_changed_bit_is_noticed() {
    for algorithm in ALGORITHMS {
        let key = SigningKey::new(algorithm, &[1; 16]);
        let mut bytes = message(100);
        key.sign_in_place(&mut bytes, 7, false, false).unwrap();
        key.verify(&[&bytes], 7, false, false).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut forged = bytes.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.verify(&[&forged], 7, false, false), Err(CryptoError::NotAuthentic));
        }
    }
}

#[test]
fn a_message_without_a_whole_header_is_refused() {
    for algorithm in ALGORITHMS {
        let key = SigningKey::new(algorithm, &[1; 16]);
        for len in [0, 1, 47, 48, 63] {
            assert_eq!(key.verify(&[&message(len)], 0, false, false), Err(CryptoError::CutShort));
        }
    }
}

#[test]
fn a_gmac_signature_of_the_other_side_is_not_accepted_as_an_echo() {
    let key = SigningKey::new(SigningAlgorithm::AesGmac, &[1; 16]);
    let mut bytes = message(80);
    key.sign_in_place(&mut bytes, 7, false, false).unwrap();
    assert_eq!(key.verify(&[&bytes], 7, true, false), Err(CryptoError::NotAuthentic));
}

#[test]
fn a_payload_beside_the_messages_has_a_signature_of_its_own() {
    for algorithm in ALGORITHMS {
        let key = SigningKey::new(algorithm, &[0x42; 16]);
        let payload = message(1000);
        let (nonce, signature) = key.sign_payload(&[&payload[..300], &payload[300..]], 7, true);
        assert_eq!(nonce.as_bytes().len(), if algorithm == SigningAlgorithm::AesGmac { 12 } else { 0 });
        assert_eq!(key.verify_payload(&[&payload], nonce.as_bytes(), &signature), Ok(()), "{algorithm:?}");
        let mut other = payload.clone();
        other[999] ^= 1;
        let mut bad = signature;
        bad[3] ^= 1;
        for (payload, signature) in [(&other, &signature[..]), (&payload, &bad), (&payload, &signature[..15])]
        {
            let refused = key.verify_payload(&[payload], nonce.as_bytes(), signature);
            assert_eq!(refused, Err(CryptoError::NotAuthentic), "{algorithm:?}");
        }
        if algorithm == SigningAlgorithm::AesGmac {
            assert!(key.verify_payload(&[&payload], &nonce.as_bytes()[1..], &signature).is_err());
        }
    }
}
