// catalogue
//
// An ordinary C++ program that does the same on every run: containers, strings, virtual calls,
// callbacks, exceptions and recursion. It depends on no address, no time and no environment.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct Item {
    virtual ~Item() = default;
    virtual std::string describe(int depth) const = 0;
};

struct Book : Item {
    std::string title;
    explicit Book(int number) : title("a book with a title of some length, number ") {
        title += std::to_string(number);
    }
    std::string describe(int depth) const override {
        return std::string(depth, ' ') + title + '\n';
    }
};

struct Shelf : Item {
    std::vector<std::unique_ptr<Item>> items;
    std::string describe(int depth) const override {
        std::string text;
        for (const auto &item : items)
            text += item->describe(depth + 1);
        return text;
    }
};

__attribute__((noinline)) static std::unique_ptr<Item> fill(int depth, int &number) {
    if (depth == 0)
        return std::make_unique<Book>(number++);
    auto shelf = std::make_unique<Shelf>();
    for (int i = 0; i < 4; i++)
        shelf->items.push_back(fill(depth - 1, number));
    return shelf;
}

__attribute__((noinline)) static std::string look_up(const std::map<std::string, int> &index,
                                                     const std::string &word) {
    auto found = index.find(word);
    if (found == index.end())
        throw std::out_of_range("there is no such word in the catalogue: " + word);
    return word + std::to_string(found->second);
}

static int by_length(const void *left, const void *right) {
    const std::string copy(*static_cast<const char *const *>(left));
    const std::string other(*static_cast<const char *const *>(right));
    return copy.compare(other);
}

int main() {
    int number = 0;
    auto all = fill(6, number);
    std::map<std::string, int> index;
    std::string text = all->describe(0);
    for (size_t at = 0; at < text.size();) {
        size_t end = text.find('\n', at);
        index[text.substr(at, end - at)] = static_cast<int>(at);
        at = end + 1;
    }
    int missing = 0;
    for (int i = 0; i < 2000; i++) {
        try {
            look_up(index, i % 2 ? index.begin()->first : "a word that is in no catalogue at all");
        } catch (const std::out_of_range &) {
            missing++;
        }
    }
    std::vector<const char *> words;
    for (const auto &[word, at] : index)
        words.push_back(word.c_str());
    std::reverse(words.begin(), words.end());
    qsort(words.data(), words.size(), sizeof words[0], by_length);
    std::function<std::string(int)> nested = [&](int left) {
        return left > 0 ? nested(left - 1) + words[left] : std::string(40, 'x');
    };
    printf("%d %d %zu\n", number, missing, nested(30).size());
    return 0;
}
