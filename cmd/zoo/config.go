package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/adrg/xdg"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/zoo-sdk/zoo/zoo"
)

const (
	// configName is the name of the configuration file, in ZOO_HOME or in the
	// folder "zoo" among the user's configuration.
	configName = "config.yaml"
	// envPrefix begins the names of environment variables: --max-tokens is ZOO_MAX_TOKENS.
	envPrefix = "ZOO"
	// maxConfigBytes bounds the size of the configuration file.
	maxConfigBytes = 1 << 20
)

// configurable marks flags that the environment and the configuration file can set.
const configurable = "zoo_configurable"

// allowConfig marks flags of a set as configurable.
func allowConfig(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		f := flags.Lookup(name)
		if f == nil {
			panic("no flag " + name)
		}
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[configurable] = nil
	}
}

// configure sets the flags of a command that are not on the command line from the
// environment and then from the configuration file.
func (a *app) configure(cmd *cobra.Command) error {
	a.global.typed = asTyped(cmd.Flags(), "home", "catalog", "catalog-key")
	v := viper.New()
	v.SetEnvPrefix(envPrefix)
	v.SetEnvKeyReplacer(strings.NewReplacer("-", "_"))
	known := configKeys(cmd.Root())
	for _, key := range known {
		if err := v.BindEnv(key); err != nil {
			return err
		}
	}
	file, err := a.configFile(cmd, v)
	if err != nil {
		return err
	}
	if file != "" {
		if err := readConfig(v, file, known); err != nil {
			return err
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, ok := f.Annotations[configurable]; !ok || f.Changed || !v.IsSet(f.Name) || err != nil {
			return
		}
		if e := setFlag(cmd.Flags(), f, v); e != nil {
			source := file
			if env := envName(f.Name); os.Getenv(env) != "" {
				source = env
			}
			err = &usageError{fmt.Sprintf("%s: %s: %v", source, f.Name, e), fmt.Sprintf("set it to a value that --%s takes", f.Name)}
		}
	})
	return err
}

// asTyped returns those of some flags that have been set, as they would be typed.
func asTyped(flags *pflag.FlagSet, names ...string) []string {
	var words []string
	for _, name := range names {
		f := flags.Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			words = append(words, "--"+name, v)
		}
	}
	return words
}

// setFlag gives a flag the configured value.
func setFlag(flags *pflag.FlagSet, f *pflag.Flag, v *viper.Viper) error {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		f.Changed = true
		return list.Replace(v.GetStringSlice(f.Name))
	}
	switch value := v.Get(f.Name).(type) {
	case []any, map[string]any:
		return errors.New("one value is needed")
	default:
		return flags.Set(f.Name, fmt.Sprint(value))
	}
}

// envName returns the variable that sets a flag.
func envName(flag string) string {
	return envPrefix + "_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// configKeys lists the configurable flags of all commands.
func configKeys(root *cobra.Command) []string {
	var keys []string
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, flags := range []*pflag.FlagSet{cmd.LocalFlags(), cmd.PersistentFlags()} {
			flags.VisitAll(func(f *pflag.Flag) {
				if _, ok := f.Annotations[configurable]; ok {
					keys = append(keys, f.Name)
				}
			})
		}
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(root)
	slices.Sort(keys)
	return slices.Compact(keys)
}

// configFile returns the configuration file: the one that was named, or the first
// of the usual ones that exists, or "".
func (a *app) configFile(cmd *cobra.Command, v *viper.Viper) (string, error) {
	if file := a.global.config; file != "" {
		return file, nil
	}
	if file := os.Getenv(envName("config")); file != "" {
		return file, nil
	}
	home := a.global.home
	if !cmd.Flags().Changed("home") {
		home = v.GetString("home")
	}
	if home == "" {
		home = zoo.DefaultHome()
	}
	for _, dir := range []string{home, filepath.Join(xdg.ConfigHome, "zoo")} {
		file := filepath.Join(dir, configName)
		switch info, err := os.Stat(file); {
		case err == nil && info.Mode().IsRegular():
			return file, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
			return "", fmt.Errorf("configuration %q: %w", file, err)
		}
	}
	return "", nil
}

// readConfig reads a configuration file strictly.
func readConfig(v *viper.Viper, file string, known []string) error {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: no configuration file %q", zoo.ErrNotFound, file)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: configuration file %q: %w", zoo.ErrNotPermitted, file, err)
	case err != nil:
		return fmt.Errorf("configuration file: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxConfigBytes:
		return &usageError{fmt.Sprintf("configuration file %q is no file of at most %d bytes", file, maxConfigBytes), "name a YAML file with --config"}
	}
	// On its own, so that its keys are not mixed with those bound to the environment.
	own := viper.New()
	own.SetConfigFile(file)
	own.SetConfigType("yaml")
	if err := own.ReadInConfig(); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("%w: configuration file %q: %w", zoo.ErrNotPermitted, file, err)
		}
		return &usageError{fmt.Sprintf("configuration file %q: %v", file, err), "correct the file; it holds lines such as `threads: 4`"}
	}
	for _, key := range own.AllKeys() {
		if !slices.Contains(known, key) {
			return &usageError{fmt.Sprintf("configuration file %q: no setting is named %q", file, key), "settings are " + strings.Join(known, ", ")}
		}
	}
	return v.MergeConfigMap(own.AllSettings())
}
