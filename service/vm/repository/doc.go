// Package repository keeps backups. (Format follows.)
package repository
