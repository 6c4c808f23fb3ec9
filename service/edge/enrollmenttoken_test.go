package edge_test

import (
	"sync"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

func (c *control) enrollmentToken(token string, body object) edgeapi.NewEnrollmentToken {
	c.Helper()
	return contracttest.As[edgeapi.NewEnrollmentToken](c.call("POST", "/enrollment-tokens", token, body).Want(201))
}

func (c *control) enroll(token string) answer {
	c.Helper()
	return c.call("POST", "/enroll", "", object{"name": "plant", "enrollment_token": token})
}

func TestAnEnrollmentTokenWorksAsOftenAndAsLongAsItSays(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		org := c.org("acme")
		made := c.enrollmentToken(org.AdminToken, object{"name": "plants", "max_uses": 2, "ttl_seconds": 600})
		if site := contracttest.As[edgeapi.Enrollment](c.enroll(made.Token).Want(200)); site.OrgId != org.Id {
			c.Errorf("the site belongs to %q", site.OrgId)
		}
		list := contracttest.As[[]edgeapi.EnrollmentToken](c.call("GET", "/enrollment-tokens", org.AdminToken, nil).Want(200))
		if len(list) != 1 || list[0].Uses != 1 || list[0].MaxUses != 2 {
			c.Errorf("%+v", list)
		}
		c.enroll(made.Token).Want(200)
		c.enroll(made.Token).Refused(401, "unauthenticated", "")

		short := c.enrollmentToken(org.AdminToken, object{"name": "short", "ttl_seconds": 60})
		c.ahead(61 * time.Second)
		c.enroll(short.Token).Want(401)
		if list := contracttest.As[[]edgeapi.EnrollmentToken](
			c.call("GET", "/enrollment-tokens", org.AdminToken, nil).Want(200),
		); len(list) != 1 {
			c.Errorf("an expired token is listed: %+v", list)
		}

		withdrawn := c.enrollmentToken(org.AdminToken, object{"name": "withdrawn"})
		c.call("DELETE", "/enrollment-tokens/"+withdrawn.Id, org.AdminToken, nil).Want(204)
		c.enroll(withdrawn.Token).Want(401)
		c.call("GET", "/sites", made.Token, nil).Want(401) // it enrolls, nothing else

		orphan := c.enrollmentToken(org.AdminToken, object{"name": "orphan"})
		c.call("DELETE", "/orgs/"+org.Id, adminToken, nil).Want(204)
		c.enroll(orphan.Token).Want(401)
	})
}

func TestATokenForOneSiteEnrollsOneOfManyAtOnce(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		made := c.enrollmentToken(adminToken, object{"name": "one"})
		var all sync.WaitGroup
		statuses := make([]int, 8)
		for i := range statuses {
			all.Go(func() { statuses[i] = c.enroll(made.Token).Status })
		}
		all.Wait()
		enrolled := 0
		for _, status := range statuses {
			if status == 200 {
				enrolled++
			}
		}
		if enrolled != 1 {
			c.Errorf("%d enrolled: %v", enrolled, statuses)
		}
	})
}

func TestAnOrgSeesAndMakesOnlyItsOwnEnrollmentTokens(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		a, b := c.org("a"), c.org("b")
		global := c.enrollmentToken(adminToken, object{"name": "for b", "org_id": b.Id})
		if global.OrgId != b.Id {
			c.Errorf("%+v", global)
		}
		c.call("POST", "/enrollment-tokens", a.AdminToken, object{"name": "x", "org_id": b.Id}).Refused(
			403, "denied", "",
		)
		c.call("POST", "/enrollment-tokens", adminToken, object{"name": "x", "org_id": "none"}).Want(404)
		if list := contracttest.As[[]edgeapi.EnrollmentToken](c.call("GET", "/enrollment-tokens", a.AdminToken, nil).Want(200)); len(
			list,
		) != 0 {
			c.Errorf("%+v", list)
		}
		c.call("DELETE", "/enrollment-tokens/"+global.Id, a.AdminToken, nil).Want(404)
		if site := contracttest.As[edgeapi.Enrollment](c.enroll(global.Token).Want(200)); site.OrgId != b.Id {
			c.Errorf("%+v", site)
		}
	})
}
