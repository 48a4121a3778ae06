//! Vectors of MS-NLMP 4.2.4: user "User", domain "Domain", password "Password", challenge 0123456789abcdef.

use super::Flags;
use super::keys::*;
use super::messages::*;
use types::FileTime;
use zeroize::Zeroizing;

fn hex<const N: usize>(text: &str) -> [u8; N] {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).unwrap() as u8).collect();
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    bytes.try_into().unwrap()
}

fn units(text: &str) -> Vec<u16> {
    text.encode_utf16().collect()
}

#[test]
fn the_nt_hash_is_that_of_the_specification() {
    assert_eq!(*NtHash::from_password("Password").as_bytes(), hex("a4f49c406510bdcab6824ee7c30fd852"));
}

#[test]
fn proof_and_keys_are_those_of_the_specification() {
    let key = ntowf_v2(&NtHash::from_password("Password"), &units("User"), &units("Domain"));
    assert_eq!(*key, hex("0c868a403bfd7a93a3001ef22ef02e3f"));

    let (domain, server) = (utf16("Domain"), utf16("Server"));
    let target_info =
        encode_pairs([(av::NETBIOS_DOMAIN_NAME, &domain[..]), (av::NETBIOS_COMPUTER_NAME, &server[..])]);
    let blob = encode_blob(FileTime(0), [0xAA; 8], &target_info);
    let proof = nt_proof(&key, &hex("0123456789abcdef"), &blob);
    assert_eq!(*proof, hex("68cd0ab851e51c96aabc927bebef6a1c"));
    let base = hmac_md5(&*key, &[&*proof]);
    assert_eq!(*base, hex("8de40ccadbc14a82f15cb0ad0de95ca3"));
    let mut encrypted = [0x55; 16];
    rc4(&*base, &mut encrypted);
    assert_eq!(encrypted, hex("c5dad2544fc9799094ce1ce90bc9d03e"));
}

#[test]
fn a_signature_is_that_of_the_specification() {
    // MS-NLMP 4.2.4.4: the checksum is encrypted after the 18 bytes of the message, so only the unencrypted part is compared.
    let context =
        SecurityContext::new(Zeroizing::new([0x55; 16]), Flags::EXTENDED_SESSION_SECURITY | Flags::KEY_128);
    let plaintext = utf16("Plaintext");
    let signature = context.sign_first(Direction::ClientToServer, &plaintext);
    let signing_key: [u8; 16] = hex("4788dc861b4782f35d43fd98fe1a2d39");
    let checksum = hmac_md5(&signing_key, &[&[0; 4], &plaintext]);
    assert_eq!(signature[..4], [1, 0, 0, 0]);
    assert_eq!(signature[4..12], checksum[..8]);
    assert_eq!(signature[12..], [0; 4]);
}

#[test]
fn with_key_exchange_the_checksum_is_encrypted_with_the_sealing_key_of_the_specification() {
    let flags = Flags::EXTENDED_SESSION_SECURITY | Flags::KEY_128 | Flags::KEY_EXCHANGE;
    let plain = SecurityContext::new(Zeroizing::new([0x55; 16]), flags & !Flags::KEY_EXCHANGE);
    let sealed = SecurityContext::new(Zeroizing::new([0x55; 16]), flags);
    let mut expected: [u8; 8] =
        plain.sign_first(Direction::ClientToServer, b"list")[4..12].try_into().unwrap();
    rc4(&hex::<16>("59f600973cc4960a25480a7c196e4c58"), &mut expected);
    assert_eq!(sealed.sign_first(Direction::ClientToServer, b"list")[4..12], expected);
}

/// The mechListMIC of both sides in "SMB 2 and SMB 3 security in Windows 10" (Open Specifications blog).
#[test]
fn mechanism_list_signatures_are_those_of_a_published_session_of_windows() {
    let context = SecurityContext::new(
        Zeroizing::new(hex("270E1BA896585EEB7AF3472D3B4C75A7")),
        Flags::from_bits_retain(0xE288_8215),
    );
    let list: [u8; 14] = hex("300C060A2B06010401823702020A");
    assert_eq!(context.sign_first(Direction::ClientToServer, &list), hex("0100000063775A9A5FD97F0600000000"));
    assert_eq!(context.sign_first(Direction::ServerToClient, &list), hex("010000003B453CDC3524164200000000"));
}

#[test]
fn capitals_of_names_beyond_ascii_count() {
    let hash = NtHash::from_password("x");
    assert_eq!(*ntowf_v2(&hash, &units("jürgen"), &[]), *ntowf_v2(&hash, &units("JÜRGEN"), &[]));
    // A character whose capital is two characters stays as it is.
    assert_ne!(*ntowf_v2(&hash, &units("straße"), &[]), *ntowf_v2(&hash, &units("STRASSE"), &[]));
}

/// The three messages of Windows in "SMB 2 and SMB 3 security in Windows 10" (Open Specifications blog): user
/// "administrator" of "SUT311".
#[test]
fn proof_session_key_and_mic_are_those_of_a_published_session_of_windows() {
    let negotiate: [u8; 40] = hex(PUBLISHED_NEGOTIATE);
    let challenge: [u8; 148] = hex(PUBLISHED_CHALLENGE);
    let mut authenticate: [u8; 422] = hex(PUBLISHED_AUTHENTICATE);
    let server_challenge = parse_challenge(&challenge).unwrap().server_challenge;
    let fields = parse_authenticate(&authenticate).unwrap();
    let text = |bytes| decode_text(bytes, fields.flags).unwrap();
    let hash = NtHash::from_password("Password01!");
    let key = ntowf_v2(&hash, &text(fields.user), &text(fields.domain));
    let (proof, blob) = fields.nt_response.split_at(16);
    assert_eq!(nt_proof(&key, &server_challenge, blob)[..], *proof);
    let mut exported: [u8; 16] = fields.encrypted_session_key.try_into().unwrap();
    rc4(&*hmac_md5(&*key, &[proof]), &mut exported);
    assert_eq!(exported, hex("270E1BA896585EEB7AF3472D3B4C75A7"));
    let pairs = parse_blob(blob).unwrap().pairs;
    assert_eq!(value_of(&pairs, av::FLAGS), Some(&[2, 0, 0, 0][..]));
    let mic: [u8; 16] = authenticate[MIC].try_into().unwrap();
    authenticate[MIC].fill(0);
    assert_eq!(*hmac_md5(&exported, &[&negotiate, &challenge, &authenticate]), mic);
}

const PUBLISHED_NEGOTIATE: &str =
    "4E544C4D5353500001000000978208E200000000000000000000000000000000060380250000000F";
const PUBLISHED_CHALLENGE: &str = "4E544C4D53535000020000000C000C003800000015828AE20D1D8BA31179D008000000000000000050005000440000000A00\
     92270000000F53005500540033003100310002000C0053005500540033003100310001000C00530055005400330031003100\
     04000C0053005500540033003100310003000C0053005500540033003100310007000800A1A1F5ADCBAED00100000000";
const PUBLISHED_AUTHENTICATE: &str = "4E544C4D53535000030000001800180090000000EE00EE00A80000000C000C00580000001A001A0064000000120012007E00\
     00001000100096010000158288E2060380250000000FECAC77A5F385A8BF9C38C706EEEDDCD3530055005400330031003100\
     610064006D0069006E006900730074007200610074006F007200440052004900560045005200330031003100000000000000\
     00000000000000000000000000000000000063078EB639FE03E20A231C3AE3BF23080101000000000000A1A1F5ADCBAED001\
     BC4AD05F223CC90F0000000002000C0053005500540033003100310001000C0053005500540033003100310004000C005300\
     5500540033003100310003000C0053005500540033003100310007000800A1A1F5ADCBAED001060004000200000008003000\
     30000000000000000000000000300000B61FEFCAA857EA57BF1EDCEBF8974B8E0EBA5A6DFD9D07A31D11B548F8C9D0CC0A00\
     1000000000000000000000000000000000000900160063006900660073002F00530055005400330031003100000000000000\
     0000000000003B9BDFF38F5EE8F9663F11A0F4C03A78";
