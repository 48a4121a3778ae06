package main

import (
	"net"

	smb2 "github.com/hirochachacha/go-smb2"
)

type Share = smb2.Share
type ResponseError = smb2.ResponseError

func dial(address, user, password string) (*smb2.Session, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	dialer := &smb2.Dialer{Initiator: &smb2.NTLMInitiator{User: user, Password: password}}
	session, err := dialer.Dial(connection)
	if err != nil {
		connection.Close()
	}
	return session, err
}
