package demo

var branchNames = []string{"Central", "Harbour", "Mill Street", "Northside", "Old Town"}

var firstNames = []string{
	"Ada", "Amir", "Anna", "Ben", "Carla", "Chen", "Dora", "Elif", "Emil", "Fatima", "Georg", "Hana", "Ines", "Ivan", "Jonas",
	"Karim", "Lea", "Linh", "Marta", "Mei", "Nils", "Olga", "Paul", "Priya", "Rosa", "Sami", "Tilda", "Umar", "Vera", "Yara",
}

var lastNames = []string{
	"Abel", "Bauer", "Costa", "Demir", "Ekman", "Fischer", "Garcia", "Haddad", "Ito", "Jansen", "Kowalski", "Lindqvist", "Moreau",
	"Novak", "Okafor", "Petrov", "Quist", "Rossi", "Schmidt", "Tran", "Ueda", "Varga", "Weber", "Xu", "Yilmaz", "Zimmer",
}

var adjectives = []string{
	"Silent", "Borrowed", "Crooked", "Distant", "Electric", "Forgotten", "Green", "Hollow", "Inland", "Late", "Little", "Midnight",
	"Northern", "Overdue", "Patient", "Quiet", "Restless", "Second", "Tidal", "Unwritten",
}

var nouns = []string{
	"Archive", "Atlas", "Bridge", "Clockmaker", "Dictionary", "Estuary", "Ferry", "Gardener", "Harbour", "Island", "Lantern",
	"Librarian", "Map", "Orchard", "Postcard", "Railway", "Shelf", "Tower", "Voyage", "Winter",
}

var insurers = []string{"Hansa Mutual", "Northern Casualty", "Provincial Cover"}
