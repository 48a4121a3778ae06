//! Vectors: "Encryption in SMB 3.0: A protocol perspective" and "SMB 3.1.1 Encryption in Windows 10" (Open Specifications blog).

use super::{hex, hex16};
use crate::crypto::*;

const ALL: [CipherId; 4] =
    [CipherId::Aes128Ccm, CipherId::Aes128Gcm, CipherId::Aes256Ccm, CipherId::Aes256Gcm];

fn pair(cipher: CipherId) -> (SealingKey, OpeningKey) {
    let key = vec![0x42; cipher.key_len()];
    (SealingKey::new(cipher, &key).unwrap(), OpeningKey::new(cipher, &key).unwrap())
}

fn sealed(cipher: CipherId, plain: &[u8]) -> Vec<u8> {
    let mut message = vec![0; TRANSFORM_HEADER_BYTES + plain.len()];
    pair(cipher).0.seal_parts(&[plain], &mut message, 77).unwrap();
    message
}

#[test]
fn aes_128_ccm_encrypts_the_published_write_byte_for_byte() {
    let plain = hex("FE534D4240000100000000000900400008000000000000000400000000000000
        FFFE0000010000001100001400E4080000000000000000000000000000000000
        3100700017000000000000000000000015010000390000020100000039020000
        00000000000000007000000000000000536D623320656E6372797074696F6E20
        74657374696E67");
    let mut message = vec![0; TRANSFORM_HEADER_BYTES + plain.len()];
    let keys = SessionKeys::new(KeySchedule::Smb30, &hex("B4546771B515F766A86735532DD6C4F0"));
    let (mut seal, _) = keys.client_ciphers(CipherId::Aes128Ccm).unwrap();
    // The published client fills the five unused bytes of the nonce field as well, and authenticates them.
    let nonce = hex16("66E69A111892584FB5ED520000000000");
    seal.seal_with_nonce(&[&plain], &mut message, 0x8_E400_1400_0011, &nonce).unwrap();
    let published = hex("25C8FEE16605A437832D1CD52DA9F4645333482A175FE5384563F45FCDAFAEF3
        8BC62BA4D5C62897996625A44C29BE5658DE2E6117585779E7B59FFD971278D0
        8580D7FA899E410E910EABF5AA1DB43050B33B49182637759AC15D84BFCDF5B6
        B238993C0F4CF4D6012023F6C627297075D84B7803912D0A9639634453595EF3
        E33FFE4E7AC2AB");
    assert_eq!(message[TRANSFORM_HEADER_BYTES..], published);

    let mut as_published = hex("FD534D4281A286535415445DAE393921E44FA42E66E69A111892584FB5ED524A
        744DA3EE87000000000001001100001400E40800");
    as_published.extend_from_slice(&published);
    let (_, open) = keys.server_ciphers(CipherId::Aes128Ccm).unwrap();
    assert_eq!(open.open_in_place(&mut as_published).unwrap(), plain);
}

#[test]
fn aes_128_ccm_opens_the_published_read_response() {
    let message = hex("FD534D42ABD518B68C2F04D7879F482B689EB83F870000000000000011000014
        00E4080067000000000001001100001400E40800493D6FE2BDBEB435CF5F5469
        70C7BB57BF20E713C75A3D045507E0D68E5C0346659D6FFB8AC1504A786CA2BB
        89C9E7FE4F313E910A04180D2D0EA7DF636329E5A3285984500EF86FE9D55DA4
        FAB9531CFDD4C551D47F3C73124BB4590A45052B694048B991CCF5");
    let keys = SessionKeys::new(KeySchedule::Smb30, &hex("B4546771B515F766A86735532DD6C4F0"));
    let (_, open) = keys.client_ciphers(CipherId::Aes128Ccm).unwrap();
    let mut plain = vec![0; 0x67];
    open.open_into(&message, &mut plain).unwrap();
    assert!(plain.ends_with(b"Smb3 encryption testing"));
}

#[test]
fn aes_128_gcm_encrypts_the_published_write_byte_for_byte() {
    let plain = hex("FE534D4240000100000000000900010008000000000000000500000000000000FFFE000001000000
        25000000001000000000000000000000000000000000000031007000170000000000000000000000
        0600000004000000010000000400000000000000000000007000000000000000536D623320656E63
        72797074696F6E2074657374696E67");
    let mut message = vec![0; TRANSFORM_HEADER_BYTES + plain.len()];
    let mut seal = SealingKey::new(CipherId::Aes128Gcm, &hex("A2F5E80E5D59103034F32E52F698E5EC")).unwrap();
    let nonce = hex16("C7D6822D269CAF48904C664C00000000");
    seal.seal_with_nonce(&[&plain], &mut message, 0x1000_0000_0025, &nonce).unwrap();
    let published = hex("FD534D42BD73D97D2BC9001BCAFAC0FDFF5FEEBCC7D6822D269CAF48904C664C0000000087000000
        0000010025000000001000006ECDD2A7AFC7B47763057A041B8FD4DAFFE990B70C9E09D36C084E02
        D14EF247F8BDE38ACF6256F8B1D3B56F77FBDEB312FEA5E92CBCC1ED8FB2EBBFAA75E49A4A394BB4
        4576545567C24D4C014D47C9FBDFDAFD2C4F9B72F8D256452620A299F48E29E53D6B61D1C13A19E9
        1AF013F00D17E3ABC2FC3D36C8C1B6B93973253852DBD442E46EE8");
    assert_eq!(message, published);
    let open = OpeningKey::new(CipherId::Aes128Gcm, &hex("A2F5E80E5D59103034F32E52F698E5EC")).unwrap();
    assert_eq!(open.open_in_place(&mut message).unwrap(), plain);
}

#[test]
fn aes_128_gcm_opens_the_published_read_response() {
    let message = hex("FD534D427F714B3B9D8FA1198584E71C2BAA1CB6E16831DD2E8EB7B4000000000000000067000000
        000001002500000000100000FECEDF4D03BB11A6CC5D8A53BE33D6D8701986342B4197D306E16F9C
        BB218E92F7F8281F51CE68BB85A20D87DE90EBBF80538066D1C37513C0A58D70936D537B624F5500
        202A612B6CD30D448A82791A0B2E049ED512AFAEFB06E98AB3D6F931D7D50DB2DBD36A");
    assert_eq!(
        TransformHeader::parse(&message),
        Ok(TransformHeader { session_id: 0x1000_0000_0025, original_len: 0x67 })
    );
    let open = OpeningKey::new(CipherId::Aes128Gcm, &hex("748C50868C90F302962A5C35F5F9A8BF")).unwrap();
    let mut plain = vec![0; 0x67];
    open.open_into(&message, &mut plain).unwrap();
    assert!(plain.ends_with(b"Smb3 encryption testing"));
}

#[test]
fn what_one_side_seals_the_other_opens_in_place_and_into_another_buffer() {
    for cipher in ALL {
        let (mut seal, open) = pair(cipher);
        for len in [0, 1, 15, 16, 17, 64, 4096, 70_001] {
            let plain: Vec<u8> = (0..len).map(|i| (i * 31) as u8).collect();
            let mut message = vec![0; TRANSFORM_HEADER_BYTES + len];
            let (front, back) = plain.split_at(len / 3);
            seal.seal_parts(&[front, &[], back], &mut message, 5).unwrap();
            let mut into = vec![0; len];
            open.open_into(&message, &mut into).unwrap();
            assert_eq!(into, plain, "{cipher:?} {len}");
            assert_eq!(open.open_in_place(&mut message).unwrap(), plain, "{cipher:?} {len}");
        }
    }
}

#[test]
fn every_changed_bit_is_noticed() {
    for cipher in ALL {
        let message = sealed(cipher, b"sixteen bytes, and then some");
        let open = pair(cipher).1;
        for bit in 0..message.len() * 8 {
            let mut forged = message.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert!(open.open_in_place(&mut forged).is_err(), "{cipher:?} bit {bit}");
        }
    }
}

#[test]
fn truncated_messages_are_refused_at_every_length() {
    for cipher in ALL {
        let message = sealed(cipher, b"payload");
        let open = pair(cipher).1;
        for len in 0..message.len() {
            assert_eq!(open.open_in_place(&mut message[..len].to_vec()).err(), Some(CryptoError::CutShort));
        }
    }
}

#[test]
fn a_length_that_claims_more_than_came_is_refused() {
    let mut message = sealed(CipherId::Aes128Gcm, b"payload");
    message[36..40].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(pair(CipherId::Aes128Gcm).1.open_in_place(&mut message).err(), Some(CryptoError::CutShort));
}

#[test]
fn no_two_messages_of_a_key_have_the_same_nonce() {
    for cipher in ALL {
        let (mut seal, _) = pair(cipher);
        let mut nonces = std::collections::HashSet::new();
        for _ in 0..600 {
            let mut message = [0; TRANSFORM_HEADER_BYTES];
            seal.seal_parts(&[], &mut message, 1).unwrap();
            assert!(nonces.insert(message[20..36].to_vec()));
        }
    }
}

#[test]
fn a_buffer_of_the_wrong_size_is_refused_before_a_nonce_is_spent() {
    let (mut seal, open) = pair(CipherId::Aes128Gcm);
    assert_eq!(
        seal.seal_parts(&[b"abc"], &mut [0; TRANSFORM_HEADER_BYTES + 2], 1),
        Err(CryptoError::CutShort)
    );
    assert_eq!(
        seal.seal_parts(&[b"abc"], &mut [0; TRANSFORM_HEADER_BYTES + 4], 1),
        Err(CryptoError::CutShort)
    );
    let mut message = [0; TRANSFORM_HEADER_BYTES + 3];
    seal.seal_parts(&[b"abc"], &mut message, 1).unwrap();
    assert_eq!(message[20..36], [0; 16]);
    assert_eq!(open.open_into(&message, &mut [0; 2]), Err(CryptoError::CutShort));
}

#[test]
fn a_key_of_another_length_is_refused() {
    for cipher in ALL {
        for len in [0, 15, 17, 24, 33] {
            assert_eq!(SealingKey::new(cipher, &vec![0; len]).err(), Some(CryptoError::KeyLength));
        }
    }
}

#[test]
fn a_payload_beside_the_messages_opens_with_its_nonce_and_tag_alone() {
    for cipher in ALL {
        let (mut sealing, opening) = pair(cipher);
        let mut payload = vec![0; 15];
        let (nonce, tag) = sealing.seal_payload(&[b"payload ", b"by RDMA"], &mut payload).unwrap();
        let mut plain = vec![0; payload.len()];
        opening.open_payload(nonce.as_bytes(), &tag, &payload, &mut plain).unwrap();
        assert_eq!(plain, b"payload by RDMA", "{cipher:?}");
        // The counter is the messages' own: no nonce comes twice.
        let (next, _) = sealing.seal_payload(&[&payload], &mut [0; 15]).unwrap();
        assert_ne!(next, nonce);
        for len in [14, 16] {
            let refused = sealing.seal_payload(&[&payload], &mut vec![0; len]);
            assert_eq!(refused.err(), Some(CryptoError::CutShort));
        }
        let mut bad_tag = tag;
        bad_tag[3] ^= 1;
        let mut longer = nonce.as_bytes().to_vec();
        longer.push(0);
        let shorter = &nonce.as_bytes()[1..];
        for (nonce, tag) in [
            (nonce.as_bytes(), &bad_tag[..]),
            (&longer, &tag),
            (shorter, &tag),
            (next.as_bytes(), &tag),
            (nonce.as_bytes(), &tag[..15]),
        ] {
            let refused = opening.open_payload(nonce, tag, &payload, &mut plain);
            assert_eq!(refused, Err(CryptoError::NotAuthentic), "{cipher:?}");
        }
    }
}
