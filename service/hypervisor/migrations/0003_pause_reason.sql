-- +goose Up

-- Why a VM is paused though nobody asked for it; empty: somebody did, or it is not paused.
ALTER TABLE vms ADD COLUMN pause_reason TEXT NOT NULL DEFAULT '';
