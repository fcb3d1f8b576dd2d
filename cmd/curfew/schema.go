package main

import (
	"github.com/spf13/cobra"

	"curfew.dev/curfew"
)

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the policy file",
		Long: `Print the JSON Schema of the policy file, for editors and for checks in CI.

"curfew check" is stricter: it knows rules that a schema cannot express.`,
		Example: `  curfew schema > curfew.schema.json
  # first line of curfew.yaml, for editors with a YAML language server:
  # yaml-language-server: $schema=curfew.schema.json`,
		Args: args(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			_, err := a.stdout.Write(curfew.Schema())
			return err
		},
	}
}
