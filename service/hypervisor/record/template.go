package record

import (
	"context"
	"errors"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Template is a VM with its memory, from which other VMs start.
type Template struct {
	ID           string          `db:"id"`
	Name         string          `db:"name"`
	Image        string          `db:"image"`   // the name that it was made of
	Content      string          `db:"content"` // the catalog content that it was made of
	VCPUs        int             `db:"vcpus"`
	MemoryMiB    int             `db:"memory_mib"`
	Network      bool            `db:"network"`    // it has a network device
	DiskBytes    int64           `db:"disk_bytes"` // of its disk, as its guest sees it; 0: none
	Traits       db.JSON[Traits] `db:"traits"`
	AgentVersion string          `db:"agent_version"`
	AgentProgram string          `db:"agent_program"` // the SHA-256 of the agent that this host gave it; empty: the image's own
	MAC          string          `db:"mac"`           // of its network device
	Secret       string          `db:"secret"`        // sealed; of its agent
	MemorySHA256 string          `db:"memory_sha256"`
	StateSHA256  string          `db:"state_sha256"`
	Size         int64           `db:"size_bytes"` // on disk
	CreatedAt    db.Time         `db:"created_at"`
}

// Traits are what a VM must have in common with a template, as a backend tells them.
type Traits struct {
	Version     string `json:"version"`
	Machine     string `json:"machine"`
	CPU         string `json:"cpu"`
	Accelerator string `json:"accelerator"`
	Shape       string `json:"shape"`
}

// InstantAny is the value of VM.Instant with which a VM's first start may use any template.
const InstantAny = "any"

// Templates lists the templates by name, starting after one. They have no tenant scope: nothing of a
// tenant is in them.
func (s *Store) Templates(ctx context.Context, after string, limit int) (all []Template, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM templates WHERE name > ? ORDER BY name LIMIT ?", after, limit)
}

// Template returns a template by name.
func (s *Store) Template(ctx context.Context, name string) (Template, error) {
	return templateIn(ctx, s.db, "name", name)
}

// TemplateByID returns a template by id.
func (s *Store) TemplateByID(ctx context.Context, id string) (Template, error) {
	return templateIn(ctx, s.db, "id", id)
}

func templateIn(ctx context.Context, q db.Querier, column, value string) (Template, error) {
	var t Template
	err := q.Get(ctx, &t, "SELECT * FROM templates WHERE "+column+" = ?", value)
	return t, db.NotFound(err, "there is no template %s", value)
}

// TemplatesOf returns the templates that were made of a content, newest first.
func (s *Store) TemplatesOf(ctx context.Context, content string) (all []Template, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM templates WHERE content = ? ORDER BY id DESC", content)
}

// TemplateIDs returns the ids of all templates.
func (s *Store) TemplateIDs(ctx context.Context) (ids []string, err error) {
	return ids, s.db.Select(ctx, &ids, "SELECT id FROM templates")
}

// TemplateSecret returns the secret of the agent in a template's memory.
func (s *Store) TemplateSecret(t *Template) (string, error) {
	plain, err := s.sealer.Open(t.Secret, t.ID)
	return string(plain), err
}

// TemplateBytes returns what all templates take on disk.
func (s *Store) TemplateBytes(ctx context.Context) (n int64, err error) {
	return n, s.db.Get(ctx, &n, "SELECT COALESCE(SUM(size_bytes), 0) FROM templates")
}

// HasImageOf reports whether an image of the catalog has a content.
func (s *Store) HasImageOf(ctx context.Context, content string) (bool, error) {
	var n int
	err := s.db.Get(ctx, &n, "SELECT COUNT(*) FROM images WHERE sha256 = ?", content)
	return n > 0, err
}

// CheckTemplate returns a fault if there is a template of a name, or if there are most templates.
func (s *Store) CheckTemplate(ctx context.Context, name string, most int) error {
	return checkTemplate(ctx, s.db, name, most)
}

func checkTemplate(ctx context.Context, q db.Querier, name string, most int) error {
	var n struct {
		All   int `db:"n"`
		Named int `db:"named"`
	}
	if err := q.Get(ctx, &n, `SELECT COUNT(*) AS n, COALESCE(SUM(CASE WHEN name = ? THEN 1 ELSE 0 END), 0) AS named
		FROM templates`, name); err != nil {
		return err
	}
	switch {
	case n.Named > 0:
		return fault.New(fault.Conflict, "there is a template named %s already", name).WithCode("name_taken")
	case n.All >= most:
		return fault.New(fault.Conflict, "there are %d templates, and images.max_templates allows no more", n.All).
			WithCode("too_many_templates")
	}
	return nil
}

// AddTemplate stores a template whose files are complete, and the base that is its disk. It fails if no
// image has its content any more.
func (s *Store) AddTemplate(ctx context.Context, t *Template, most int) error {
	t.CreatedAt = db.At(s.now())
	return s.db.Update(ctx, func(tx *db.Tx) error {
		if err := checkTemplate(ctx, tx, t.Name, most); err != nil {
			return err
		}
		var images int
		if err := tx.Get(ctx, &images, "SELECT COUNT(*) FROM images WHERE sha256 = ?", t.Content); err != nil {
			return err
		}
		if images == 0 {
			return fault.New(fault.Conflict, "the image %s was removed meanwhile", t.Image)
		}
		if t.DiskBytes > 0 {
			if _, err := tx.Exec(
				ctx, "INSERT INTO bases (id, parent, content) VALUES (?, '', ?)", t.ID, t.Content,
			); err != nil {
				return err
			}
		}
		return tx.Insert(ctx, "templates", *t)
	})
}

// RemoveTemplate removes the row of a template. Its files follow.
func (s *Store) RemoveTemplate(ctx context.Context, name string) (Template, error) {
	var t Template
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		if t, err = templateIn(ctx, tx, "name", name); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM templates WHERE id = ?", t.ID); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "template.delete", Target: name})
	})
	return t, err
}

// StandOnTemplate stores that a VM's disk is about to stand on a template's, so that this stays. It
// fails with NotFound if the template is gone.
func (s *Store) StandOnTemplate(ctx context.Context, vmID, template string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		if _, err := templateIn(ctx, tx, "id", template); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE vms SET disk_base = ? WHERE id = ?", template, vmID)
		return err
	})
}

// StandOnImage undoes StandOnTemplate.
func (s *Store) StandOnImage(ctx context.Context, vmID string) error {
	return s.exec(ctx, "UPDATE vms SET disk_base = '' WHERE id = ?", vmID)
}

// mayRemoveImage returns a fault if templates would be left without an image.
func mayRemoveImage(ctx context.Context, tx *db.Tx, i *Image) error {
	var name string
	err := tx.Get(ctx, &name, `SELECT t.name FROM templates t WHERE t.content = ?
		AND NOT EXISTS (SELECT 1 FROM images i WHERE i.sha256 = t.content AND i.name <> ?) ORDER BY t.name LIMIT 1`,
		i.SHA256, i.Name)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fault.New(fault.Conflict, "the template %s is made of the image %s; delete the template first", name, i.Name).
		WithCode("image_in_use")
}
