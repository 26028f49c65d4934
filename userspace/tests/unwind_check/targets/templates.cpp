// What the compiler proper is given: headers that cost it many allocations.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>

template <int N> struct Chain {
    std::map<int, std::unique_ptr<Chain<N - 1>>> next;
    std::function<int(const Chain &)> count = [](const Chain &chain) {
        int sum = N;
        for (auto &[key, value] : chain.next)
            sum += key + value->count(*value);
        return sum;
    };
};

template <> struct Chain<0> {
    std::function<int(const Chain &)> count = [](const Chain &) { return 0; };
};

int main(int count, char **words) {
    std::unordered_map<std::string, std::vector<std::string>> found;
    std::regex pattern("([a-z]+)=([0-9]+)");
    for (std::string word : std::vector<std::string>(words, words + count)) {
        std::smatch match;
        if (std::regex_search(word, match, pattern))
            found[match[1]].push_back(match[2]);
    }
    Chain<12> chain;
    for (auto &[key, values] : found) {
        std::sort(values.begin(), values.end());
        std::cout << key << ' ' << values.size() << '\n';
    }
    return chain.count(chain);
}
