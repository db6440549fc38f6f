//go:build tools

// Names the program that is built here, so that go.mod and go.sum have what it needs.
package program

import _ "github.com/hashicorp/terraform"
