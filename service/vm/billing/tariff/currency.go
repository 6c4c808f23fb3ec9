package tariff

import "strings"

// currencies are the currencies of ISO 4217 that people pay with.
const currencies = "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF " +
	"CHF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL " +
	"HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL " +
	"MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON " +
	"RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH " +
	"UGX USD UYU UZS VED VES VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG"

// Codes of currencies whose smallest unit is not a hundredth.
const (
	noPlaces    = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF"
	threePlaces = "BHD IQD JOD KWD LYD OMR TND"
)

// Places returns how many decimal places a currency's smallest unit has. ok is false if ISO 4217 has no
// such currency.
func Places(code string) (places int32, ok bool) {
	has := func(list string) bool { return len(code) == 3 && strings.Contains(" "+list+" ", " "+code+" ") }
	switch {
	case !has(currencies):
		return 0, false
	case has(noPlaces):
		return 0, true
	case has(threePlaces):
		return 3, true
	}
	return 2, true
}
